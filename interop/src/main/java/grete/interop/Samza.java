package grete.interop;

import java.io.FileInputStream;
import java.io.InputStream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.samza.Partition;
import org.apache.samza.checkpoint.Checkpoint;
import org.apache.samza.checkpoint.CheckpointId;
import org.apache.samza.checkpoint.CheckpointManager;
import org.apache.samza.checkpoint.CheckpointV1;
import org.apache.samza.checkpoint.CheckpointV2;
import org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory;
import org.apache.samza.config.Config;
import org.apache.samza.config.MapConfig;
import org.apache.samza.container.LocalityManager;
import org.apache.samza.container.TaskName;
import org.apache.samza.container.grouper.task.TaskAssignmentManager;
import org.apache.samza.container.grouper.task.TaskPartitionAssignmentManager;
import org.apache.samza.coordinator.metadatastore.CoordinatorStreamStore;
import org.apache.samza.coordinator.metadatastore.NamespaceAwareCoordinatorStreamStore;
import org.apache.samza.coordinator.stream.CoordinatorStreamSystemConsumer;
import org.apache.samza.coordinator.stream.CoordinatorStreamSystemProducer;
import org.apache.samza.coordinator.stream.messages.SetChangelogMapping;
import org.apache.samza.coordinator.stream.messages.SetConfig;
import org.apache.samza.coordinator.stream.messages.SetContainerHostMapping;
import org.apache.samza.coordinator.stream.messages.SetJobCoordinatorMetadataMessage;
import org.apache.samza.coordinator.stream.messages.SetTaskContainerMapping;
import org.apache.samza.coordinator.stream.messages.SetTaskModeMapping;
import org.apache.samza.coordinator.stream.messages.SetTaskPartitionMapping;
import org.apache.samza.job.JobCoordinatorMetadata;
import org.apache.samza.job.metadata.JobCoordinatorMetadataManager;
import org.apache.samza.job.model.TaskMode;
import org.apache.samza.metadatastore.MetadataStore;
import org.apache.samza.metrics.MetricsRegistryMap;
import org.apache.samza.startpoint.Startpoint;
import org.apache.samza.startpoint.StartpointManager;
import org.apache.samza.startpoint.StartpointSpecific;
import org.apache.samza.startpoint.StartpointTimestamp;
import org.apache.samza.storage.ChangelogStreamManager;
import org.apache.samza.system.SystemStreamPartition;
import org.apache.samza.util.CoordinatorStreamUtil;

/**
 * The real Samza at the other end of grete's topics. What it reads it prints as lines, sorted, fields parted by tabs;
 * what it writes is the same each time, so that the Python side knows what to expect.
 *
 * <p>Usage: Samza COMMAND config.properties, where COMMAND is one of those in main.
 */
public final class Samza {
  private static final SystemStreamPartition PAGE_VIEWS_0 = ssp("page-views", 0);
  private static final SystemStreamPartition PAGE_VIEWS_1 = ssp("page-views", 1);
  private static final TaskName TASK_0 = new TaskName("Partition 0");
  private static final TaskName TASK_1 = new TaskName("Partition 1");

  private final Set<String> lines = new TreeSet<>();
  private final Config config;

  private Samza(Config config) {
    this.config = config;
  }

  public static void main(String[] arguments) throws Exception {
    Samza samza = new Samza(load(arguments[1]));
    switch (arguments[0]) {
      case "read-coordinator-stream" -> samza.readCoordinatorStream();
      case "write-coordinator-stream" -> samza.writeCoordinatorStream();
      case "submit" -> samza.submit();
      case "read-checkpoints" -> samza.readCheckpoints();
      case "write-checkpoints" -> samza.writeCheckpoints();
      case "time-bootstrap" -> samza.timeBootstrap();
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    samza.lines.forEach(System.out::println);
    System.exit(0); // Kafka's clients leave threads behind
  }

  private static Config load(String path) throws Exception {
    Properties properties = new Properties();
    try (InputStream in = new FileInputStream(path)) {
      properties.load(in);
    }
    Map<String, String> map = new HashMap<>();
    properties.forEach((key, value) -> map.put((String) key, (String) value));
    return new MapConfig(map);
  }

  private static SystemStreamPartition ssp(String stream, int partition) {
    return new SystemStreamPartition("kafka", stream, new Partition(partition));
  }

  private void line(Object... fields) {
    StringBuilder line = new StringBuilder();
    for (Object field : fields) {
      line.append(line.length() == 0 ? "" : "\t").append(field);
    }
    lines.add(line.toString());
  }

  private CoordinatorStreamSystemConsumer bootstrapped() {
    CoordinatorStreamSystemConsumer consumer = new CoordinatorStreamSystemConsumer(config, new MetricsRegistryMap());
    consumer.register();
    consumer.start();
    consumer.bootstrap();
    return consumer;
  }

  private CoordinatorStreamStore store() {
    CoordinatorStreamStore store = new CoordinatorStreamStore(config, new MetricsRegistryMap());
    store.init();
    return store;
  }

  private static MetadataStore namespace(CoordinatorStreamStore store, String type) {
    return new NamespaceAwareCoordinatorStreamStore(store, type);
  }

  private void readCoordinatorStream() throws Exception {
    CoordinatorStreamSystemConsumer consumer = bootstrapped();
    consumer.getConfig().forEach((key, value) -> line("config", key, value));
    consumer.stop();
    CoordinatorStreamStore store = store();
    new LocalityManager(namespace(store, SetContainerHostMapping.TYPE)).readLocality().getProcessorLocalities()
        .forEach((processor, locality) -> line("locality", processor, locality.host()));
    TaskAssignmentManager assignments = new TaskAssignmentManager(
        namespace(store, SetTaskContainerMapping.TYPE), namespace(store, SetTaskModeMapping.TYPE));
    assignments.readTaskAssignment().forEach((task, container) -> line("container", task, container));
    assignments.readTaskModes().forEach((task, mode) -> line("mode", task, mode));
    new TaskPartitionAssignmentManager(namespace(store, SetTaskPartitionMapping.TYPE)).readTaskPartitionAssignments()
        .forEach((ssp, tasks) -> line("tasks", text(ssp), String.join(",", tasks)));
    new ChangelogStreamManager(namespace(store, SetChangelogMapping.TYPE)).readPartitionMapping()
        .forEach((task, partition) -> line("changelog", task, partition));
    JobCoordinatorMetadata metadata = metadataManager(store).readJobCoordinatorMetadata();
    if (metadata != null) {
      line("metadata", metadata.getEpochId(), metadata.getConfigId(), metadata.getJobModelId());
    }
    StartpointManager startpoints = new StartpointManager(store);
    startpoints.start();
    for (SystemStreamPartition ssp : List.of(PAGE_VIEWS_0, PAGE_VIEWS_1)) {
      for (TaskName task : List.of(TASK_0, TASK_1)) {
        startpoints.readStartpoint(ssp, task).ifPresent(it -> line("startpoint", text(ssp), task, text(it)));
      }
    }
    store.close();
  }

  private static JobCoordinatorMetadataManager metadataManager(CoordinatorStreamStore store) {
    return new JobCoordinatorMetadataManager(namespace(store, SetJobCoordinatorMetadataMessage.TYPE),
        JobCoordinatorMetadataManager.ClusterType.NON_YARN, new MetricsRegistryMap());
  }

  private static String text(SystemStreamPartition ssp) {
    return ssp.getSystem() + "." + ssp.getStream() + "." + ssp.getPartition().getPartitionId();
  }

  private static String text(Startpoint startpoint) {
    if (startpoint instanceof StartpointSpecific specific) {
      return "specific " + specific.getSpecificOffset();
    }
    if (startpoint instanceof StartpointTimestamp timestamp) {
      return "timestamp " + timestamp.getTimestampOffset();
    }
    return startpoint.getClass().getSimpleName();
  }

  private void writeCoordinatorStream() throws Exception {
    CoordinatorStreamSystemProducer producer =
        new CoordinatorStreamSystemProducer(config, new MetricsRegistryMap());
    producer.register("interop");
    producer.start();
    Map<String, String> written = new HashMap<>(config);
    written.put("written.by", "samza 1.8.0");
    written.put("text", "a \"quoted\" \u00e4\u6f22 text\n\ttab");
    written.put("empty", "");
    producer.send(new SetConfig("interop", "overwritten", "first"));
    producer.send(new SetConfig("interop", "overwritten", "second"));
    producer.send(new SetConfig("interop", "deleted", "soon"));
    producer.send(new org.apache.samza.coordinator.stream.messages.Delete("interop", "deleted", SetConfig.TYPE));
    producer.writeConfig("interop", new MapConfig(written)); // which flushes; send does not
    producer.stop();
    CoordinatorStreamStore store = store();
    new LocalityManager(namespace(store, SetContainerHostMapping.TYPE)).writeContainerToHostMapping("0", "host-a");
    new TaskAssignmentManager(
        namespace(store, SetTaskContainerMapping.TYPE), namespace(store, SetTaskModeMapping.TYPE))
        .writeTaskContainerMappings(Map.of(
            "0", Map.of(TASK_0.getTaskName(), TaskMode.Active), "1", Map.of(TASK_1.getTaskName(), TaskMode.Active)));
    new TaskPartitionAssignmentManager(namespace(store, SetTaskPartitionMapping.TYPE)).writeTaskPartitionAssignments(
        Map.of(PAGE_VIEWS_0, List.of(TASK_0.getTaskName()), PAGE_VIEWS_1, List.of(TASK_1.getTaskName())));
    new ChangelogStreamManager(namespace(store, SetChangelogMapping.TYPE))
        .writePartitionMapping(Map.of(TASK_0, 0, TASK_1, 1));
    metadataManager(store).writeJobCoordinatorMetadata(new JobCoordinatorMetadata("epoch-7", "123", "-456"));
    StartpointManager startpoints = new StartpointManager(store);
    startpoints.start();
    startpoints.writeStartpoint(PAGE_VIEWS_0, TASK_0, new StartpointSpecific("42"));
    startpoints.writeStartpoint(PAGE_VIEWS_1, TASK_1, new StartpointTimestamp(1700000000000L));
    store.flush();
    store.close();
  }

  /** What Samza's runner and job coordinator leave in the stream when a job of two tasks in one container starts. */
  private void submit() {
    CoordinatorStreamUtil.createCoordinatorStream(config);
    CoordinatorStreamUtil.writeConfigToCoordinatorStream(config, true);
    CoordinatorStreamStore store = store();
    new TaskAssignmentManager(
        namespace(store, SetTaskContainerMapping.TYPE), namespace(store, SetTaskModeMapping.TYPE))
        .writeTaskContainerMappings(Map.of(
            "0", Map.of(TASK_0.getTaskName(), TaskMode.Active, TASK_1.getTaskName(), TaskMode.Active)));
    new TaskPartitionAssignmentManager(namespace(store, SetTaskPartitionMapping.TYPE)).writeTaskPartitionAssignments(
        Map.of(PAGE_VIEWS_0, List.of(TASK_0.getTaskName()), PAGE_VIEWS_1, List.of(TASK_1.getTaskName())));
    new ChangelogStreamManager(namespace(store, SetChangelogMapping.TYPE))
        .writePartitionMapping(Map.of(TASK_0, 1, TASK_1, 0));
    store.flush();
    store.close();
  }

  private CheckpointManager checkpointManager() {
    CheckpointManager manager = new KafkaCheckpointManagerFactory().getCheckpointManager(config, new MetricsRegistryMap());
    manager.createResources();
    manager.register(TASK_0);
    manager.register(TASK_1);
    manager.start();
    return manager;
  }

  private void readCheckpoints() {
    CheckpointManager manager = checkpointManager();
    for (TaskName task : List.of(TASK_0, TASK_1)) {
      Checkpoint checkpoint = manager.readLastCheckpoint(task);
      if (checkpoint != null) {
        checkpoint.getOffsets().forEach(
            (ssp, offset) -> line("checkpoint", "v" + checkpoint.getVersion(), task, text(ssp), offset));
      }
    }
    manager.stop();
  }

  private void writeCheckpoints() {
    CheckpointManager manager = checkpointManager();
    for (Map.Entry<TaskName, SystemStreamPartition> each
        : Map.of(TASK_0, PAGE_VIEWS_0, TASK_1, PAGE_VIEWS_1).entrySet()) {
      Map<SystemStreamPartition, String> offsets = Map.of(each.getValue(), "10" + each.getKey().getTaskName().charAt(10));
      manager.writeCheckpoint(each.getKey(), new CheckpointV1(offsets));
      manager.writeCheckpoint(each.getKey(), new CheckpointV2(CheckpointId.create(), offsets, Map.of()));
    }
    manager.stop();
  }

  private void timeBootstrap() {
    long before = System.nanoTime();
    CoordinatorStreamSystemConsumer consumer = bootstrapped();
    double seconds = (System.nanoTime() - before) / 1e9;
    int keys = consumer.getConfig().size();
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    line("bootstrap", keys, seconds, (runtime.totalMemory() - runtime.freeMemory()) >> 20);
    consumer.stop();
  }
}
