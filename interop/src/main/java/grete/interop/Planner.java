package grete.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.samza.Partition;
import org.apache.samza.config.Config;
import org.apache.samza.config.MapConfig;
import org.apache.samza.container.LocalityManager;
import org.apache.samza.container.TaskName;
import org.apache.samza.container.grouper.task.TaskAssignmentManager;
import org.apache.samza.container.grouper.task.TaskPartitionAssignmentManager;
import org.apache.samza.coordinator.JobModelCalculator;
import org.apache.samza.coordinator.JobModelHelper;
import org.apache.samza.coordinator.metadatastore.NamespaceAwareCoordinatorStreamStore;
import org.apache.samza.coordinator.stream.messages.SetChangelogMapping;
import org.apache.samza.coordinator.stream.messages.SetContainerHostMapping;
import org.apache.samza.coordinator.stream.messages.SetJobCoordinatorMetadataMessage;
import org.apache.samza.coordinator.stream.messages.SetTaskContainerMapping;
import org.apache.samza.coordinator.stream.messages.SetTaskModeMapping;
import org.apache.samza.coordinator.stream.messages.SetTaskPartitionMapping;
import org.apache.samza.job.metadata.JobCoordinatorMetadataManager;
import org.apache.samza.job.model.JobModel;
import org.apache.samza.job.model.TaskMode;
import org.apache.samza.metadatastore.MetadataStore;
import org.apache.samza.metrics.MetricsRegistryMap;
import org.apache.samza.serializers.model.SamzaObjectMapper;
import org.apache.samza.startpoint.Startpoint;
import org.apache.samza.storage.ChangelogStreamManager;
import org.apache.samza.system.StreamMetadataCache;
import org.apache.samza.system.SystemAdmin;
import org.apache.samza.system.SystemAdmins;
import org.apache.samza.system.SystemStreamMetadata;
import org.apache.samza.system.SystemStreamMetadata.SystemStreamPartitionMetadata;
import org.apache.samza.system.SystemStreamPartition;
import sun.misc.Unsafe;

/**
 * The real planner as a server on its standard streams: a story a line, what it made of it a line.
 *
 * <p>A story is a list of starts of a job's coordinator on one stream, which is empty before the first. Of each start it
 * is given the configuration, the partitions of the streams that there are, and the hosts that containers have written
 * down since the last one; and it answers with the job model, its id and what the stream remembers, or with the
 * exception. Only the stream and the brokers are in memory; everything that decides is Samza's.
 */
public final class Planner {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final MetadataStore stream = new Remembering();

  public static void main(String[] arguments) throws Exception {
    for (TaskMode mode : TaskMode.values()) {
      setIdentityHash(mode, Integer.getInteger("grete.identity.hash"));
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Planner planner = new Planner();
      ArrayNode answers = JSON.createArrayNode();
      for (JsonNode start : JSON.readTree(line)) {
        answers.add(planner.answer(start));
      }
      out.println(JSON.writeValueAsString(answers));
      out.flush();
    }
    System.exit(0);
  }

  /**
   * A TaskModel's hash code contains its mode's, which is the identity hash of an enum constant: a random number that
   * decides the order of sets. It is kept in the object's header, above eight bits of which the last says "unlocked".
   */
  private static void setIdentityHash(Object object, int hash) throws Exception {
    Field field = Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    ((Unsafe) field.get(null)).putLong(object, 0L, ((long) hash << 8) | 1);
    if (System.identityHashCode(object) != hash) {
      throw new IllegalStateException("this JVM keeps identity hashes elsewhere; run Java 17");
    }
  }

  private MetadataStore namespace(String type) {
    return new NamespaceAwareCoordinatorStreamStore(stream, type);
  }

  private ObjectNode answer(JsonNode start) {
    ObjectNode answer = JSON.createObjectNode();
    try {
      plan(start, answer);
    } catch (Exception refused) {
      Throwable cause = refused.getCause() == null ? refused : refused.getCause();
      answer.put("refused", cause.getClass().getSimpleName() + ": " + cause.getMessage());
    }
    return answer;
  }

  /** As JobModelManager.apply and ClusterBasedJobCoordinator do it, without HTTP. */
  private void plan(JsonNode start, ObjectNode answer) throws Exception {
    LocalityManager locality = new LocalityManager(namespace(SetContainerHostMapping.TYPE));
    start.get("hosts").fields().forEachRemaining(
        it -> locality.writeContainerToHostMapping(it.getKey(), it.getValue().asText()));
    Map<String, String> map = new HashMap<>();
    start.get("config").fields().forEachRemaining(it -> map.put(it.getKey(), it.getValue().asText()));
    Config config = new MapConfig(map);
    TaskAssignmentManager assignments =
        new TaskAssignmentManager(namespace(SetTaskContainerMapping.TYPE), namespace(SetTaskModeMapping.TYPE));
    TaskPartitionAssignmentManager partitions =
        new TaskPartitionAssignmentManager(namespace(SetTaskPartitionMapping.TYPE));
    ChangelogStreamManager changelog = new ChangelogStreamManager(namespace(SetChangelogMapping.TYPE));
    JobModelHelper helper = new JobModelHelper(locality, assignments, partitions,
        new StreamMetadataCache(systems(start.get("streams")), 0, org.apache.samza.util.SystemClock.instance()),
        JobModelCalculator.INSTANCE);
    JobModel calculated = helper.newJobModel(config, changelog.readPartitionMapping());
    JobModel model = new JobModel(calculated.getConfig(), calculated.getContainers());
    Map<TaskName, Integer> mapping = new HashMap<>();
    model.getContainers().values().forEach(container -> container.getTasks().values().forEach(
        task -> mapping.put(task.getTaskName(), task.getChangelogPartition().getPartitionId())));
    changelog.updatePartitionMapping(changelog.readPartitionMapping(), mapping);
    byte[] served = SamzaObjectMapper.getObjectMapper().writeValueAsBytes(model);
    answer.put("model", new String(served, StandardCharsets.UTF_8));
    answer.put("id", new JobCoordinatorMetadataManager(namespace(SetJobCoordinatorMetadataMessage.TYPE),
        JobCoordinatorMetadataManager.ClusterType.NON_YARN, new MetricsRegistryMap())
        .generateJobCoordinatorMetadata(model, config).getJobModelId());
    remembered(answer, assignments, partitions, changelog);
  }

  private static void remembered(ObjectNode answer, TaskAssignmentManager assignments,
      TaskPartitionAssignmentManager partitions, ChangelogStreamManager changelog) throws Exception {
    ObjectNode containers = answer.putObject("containers");
    assignments.readTaskAssignment().forEach(containers::put);
    ObjectNode modes = answer.putObject("modes");
    assignments.readTaskModes().forEach((task, mode) -> modes.put(task.getTaskName(), mode.toString()));
    ObjectNode tasks = answer.putObject("tasks");
    partitions.readTaskPartitionAssignments().forEach((ssp, names) -> names.forEach(tasks.withArray(text(ssp))::add));
    ObjectNode mapping = answer.putObject("changelog");
    changelog.readPartitionMapping().forEach((task, partition) -> mapping.put(task.getTaskName(), partition));
  }

  private static String text(SystemStreamPartition ssp) {
    return ssp.getSystem() + "." + ssp.getStream() + "." + ssp.getPartition().getPartitionId();
  }

  private static SystemAdmins systems(JsonNode streams) {
    Map<String, SystemAdmin> admins = new HashMap<>();
    streams.fields().forEachRemaining(it -> admins.put(it.getKey(), new Brokers(it.getValue())));
    return new SystemAdmins(admins);
  }

  /** Counts partitions as KafkaSystemAdmin does: into a map from the streams asked for, of maps from partitions. */
  private static final class Brokers implements SystemAdmin {
    private final JsonNode counts;

    Brokers(JsonNode counts) {
      this.counts = counts;
    }

    @Override
    public Map<String, SystemStreamMetadata> getSystemStreamPartitionCounts(Set<String> names, long ttl) {
      Map<String, SystemStreamMetadata> found = new HashMap<>();
      names.forEach(name -> {
        Map<Partition, SystemStreamPartitionMetadata> partitions = new HashMap<>();
        for (int number = 0; number < counts.get(name).asInt(); number++) {
          partitions.put(new Partition(number), new SystemStreamPartitionMetadata(null, null, null));
        }
        found.put(name, new SystemStreamMetadata(name, partitions));
      });
      return found;
    }

    @Override
    public Map<String, SystemStreamMetadata> getSystemStreamMetadata(Set<String> names) {
      return getSystemStreamPartitionCounts(names, 0);
    }

    @Override
    public Map<SystemStreamPartition, String> getOffsetsAfter(Map<SystemStreamPartition, String> offsets) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Integer offsetComparator(String one, String other) {
      throw new UnsupportedOperationException();
    }

    @Override
    public String resolveStartpointToOffset(SystemStreamPartition ssp, Startpoint startpoint) {
      throw new UnsupportedOperationException();
    }
  }

  /** What a coordinator stream remembers, in the map in which CoordinatorStreamStore has it. */
  private static final class Remembering implements MetadataStore {
    private final Map<String, byte[]> values = new HashMap<>();

    @Override
    public void init() { }

    @Override
    public byte[] get(String key) {
      return values.get(key);
    }

    @Override
    public void put(String key, byte[] value) {
      values.put(key, value);
    }

    @Override
    public void delete(String key) {
      values.remove(key);
    }

    @Override
    public Map<String, byte[]> all() {
      return new HashMap<>(values);
    }

    @Override
    public void flush() { }

    @Override
    public void close() { }
  }
}
