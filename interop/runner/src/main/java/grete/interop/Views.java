package grete.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileInputStream;
import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.samza.config.MapConfig;
import org.apache.samza.context.Context;
import org.apache.samza.job.JobRunner;
import org.apache.samza.storage.kv.KeyValueStore;
import org.apache.samza.system.IncomingMessageEnvelope;
import org.apache.samza.system.OutgoingMessageEnvelope;
import org.apache.samza.system.SystemStream;
import org.apache.samza.task.InitableTask;
import org.apache.samza.task.MessageCollector;
import org.apache.samza.task.StreamTask;
import org.apache.samza.task.TaskCoordinator;

/**
 * A stateful job in a real container: it counts each key in a store, sends each count with the place of the message
 * that made it, and commits when a message says so. A test can so stop it between two commits.
 */
public final class Views implements StreamTask, InitableTask {
  private final ObjectMapper mapper = new ObjectMapper();
  private KeyValueStore<String, Integer> counts;
  private SystemStream target;

  /** Usage: Views config.properties; the job runs until it is killed or stopped. */
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    try (InputStream file = new FileInputStream(arguments[0])) {
      properties.load(file);
    }
    Map<String, String> map = new HashMap<>();
    properties.forEach((key, value) -> map.put((String) key, (String) value));
    new JobRunner(new MapConfig(map)).run(true);
  }

  @Override
  @SuppressWarnings("unchecked")
  public void init(Context context) {
    counts = (KeyValueStore<String, Integer>) context.getTaskContext().getStore("counts");
    target = new SystemStream("kafka", context.getJobContext().getConfig().get("views.target"));
  }

  @Override
  public void process(IncomingMessageEnvelope envelope, MessageCollector collector, TaskCoordinator coordinator)
      throws Exception {
    String key = (String) envelope.getKey();
    Integer seen = counts.get(key);
    int count = seen == null ? 1 : seen + 1;
    counts.put(key, count);
    int partition = envelope.getSystemStreamPartition().getPartition().getPartitionId();
    int[] place = {partition, Integer.parseInt(envelope.getOffset())};
    collector.send(new OutgoingMessageEnvelope(target, key, Map.of("count", count, "at", place)));
    if (Boolean.TRUE.equals(((Map<?, ?>) envelope.getMessage()).get("commit"))) {
      coordinator.commit(TaskCoordinator.RequestScope.CURRENT_TASK);
    }
  }
}
