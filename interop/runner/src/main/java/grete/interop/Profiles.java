package grete.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.samza.config.Config;
import org.apache.samza.context.Context;
import org.apache.samza.metrics.MetricsRegistry;
import org.apache.samza.storage.SideInputsProcessor;
import org.apache.samza.storage.SideInputsProcessorFactory;
import org.apache.samza.storage.kv.Entry;
import org.apache.samza.storage.kv.KeyValueStore;
import org.apache.samza.system.IncomingMessageEnvelope;
import org.apache.samza.system.OutgoingMessageEnvelope;
import org.apache.samza.system.SystemStream;
import org.apache.samza.task.InitableTask;
import org.apache.samza.task.MessageCollector;
import org.apache.samza.task.StreamTask;
import org.apache.samza.task.TaskCoordinator;

/**
 * A job with a store that a side input fills: each message is sent on with what the store has of its key, and with the
 * message's place. It commits when a message says so. {@link Views} runs it.
 */
public final class Profiles implements StreamTask, InitableTask {
  private KeyValueStore<String, Map<String, Object>> profiles;
  private SystemStream target;

  @Override
  @SuppressWarnings("unchecked")
  public void init(Context context) {
    profiles = (KeyValueStore<String, Map<String, Object>>) context.getTaskContext().getStore("profiles");
    target = new SystemStream("kafka", context.getJobContext().getConfig().get("views.target"));
  }

  @Override
  public void process(IncomingMessageEnvelope envelope, MessageCollector collector, TaskCoordinator coordinator) {
    String key = (String) envelope.getKey();
    int partition = envelope.getSystemStreamPartition().getPartition().getPartitionId();
    Map<String, Object> value = new LinkedHashMap<>();
    value.put("profile", profiles.get(key));
    value.put("at", new int[] {partition, Integer.parseInt(envelope.getOffset())});
    collector.send(new OutgoingMessageEnvelope(target, key, value));
    if (Boolean.TRUE.equals(((Map<?, ?>) envelope.getMessage()).get("commit"))) {
      coordinator.commit(TaskCoordinator.RequestScope.CURRENT_TASK);
    }
  }

  /** Makes what fills the store: of each message its value, with how many there have been of its key. */
  public static final class Filling implements SideInputsProcessorFactory {
    @Override
    public SideInputsProcessor getSideInputsProcessor(Config config, MetricsRegistry metrics) {
      return Filling::entries;
    }

    @SuppressWarnings("unchecked")
    private static Collection<Entry<?, ?>> entries(IncomingMessageEnvelope message, KeyValueStore store) {
      List<Entry<?, ?>> found = new ArrayList<>();
      Map<String, Object> said = (Map<String, Object>) message.getMessage();
      if (message.getKey() == null) {
        found.add(new Entry<>(null, said));
        return found;
      }
      if (Boolean.TRUE.equals(said.get("left"))) {
        found.add(new Entry<>(message.getKey(), null));
        return found;
      }
      Map<String, Object> before = (Map<String, Object>) store.get(message.getKey());
      Map<String, Object> profile = new LinkedHashMap<>(said);
      profile.put("version", before == null ? 1 : ((Number) before.get("version")).intValue() + 1);
      found.add(new Entry<>(message.getKey(), profile));
      return found;
    }
  }
}
