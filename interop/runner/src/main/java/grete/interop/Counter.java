package grete.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileInputStream;
import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.samza.application.TaskApplication;
import org.apache.samza.application.descriptors.TaskApplicationDescriptor;
import org.apache.samza.config.Config;
import org.apache.samza.config.MapConfig;
import org.apache.samza.context.Context;
import org.apache.samza.runtime.LocalApplicationRunner;
import org.apache.samza.serializers.KVSerde;
import org.apache.samza.serializers.NoOpSerde;
import org.apache.samza.storage.kv.KeyValueStore;
import org.apache.samza.system.IncomingMessageEnvelope;
import org.apache.samza.system.OutgoingMessageEnvelope;
import org.apache.samza.system.SystemStream;
import org.apache.samza.system.kafka.descriptors.KafkaSystemDescriptor;
import org.apache.samza.task.InitableTask;
import org.apache.samza.task.MessageCollector;
import org.apache.samza.task.StreamTask;
import org.apache.samza.task.StreamTaskFactory;
import org.apache.samza.task.TaskCoordinator;

/** JSON in, a counter for each key in a store, JSON out, in Samza's local runner until it is killed. */
public final class Counter implements TaskApplication {
  private final String source;

  private Counter(String source) {
    this.source = source;
  }

  /** Usage: Counter config.properties, whose bench.* keys name the topics and the work. */
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    try (InputStream file = new FileInputStream(arguments[0])) {
      properties.load(file);
    }
    Map<String, String> map = new HashMap<>();
    properties.forEach((key, value) -> map.put((String) key, (String) value));
    Config config = new MapConfig(map);
    LocalApplicationRunner runner = new LocalApplicationRunner(new Counter(config.get("bench.source")), config);
    runner.run();
    runner.waitForFinish();
  }

  @Override
  public void describe(TaskApplicationDescriptor descriptor) {
    KafkaSystemDescriptor kafka = new KafkaSystemDescriptor("kafka");
    NoOpSerde<Object> bytes = new NoOpSerde<>();
    descriptor
        .withInputStream(kafka.getInputDescriptor(source, KVSerde.of(bytes, bytes)))
        .withTaskFactory((StreamTaskFactory) Task::new);
  }

  private static final class Task implements StreamTask, InitableTask {
    private final ObjectMapper mapper = new ObjectMapper();
    private KeyValueStore<String, Integer> counts;
    private SystemStream target;
    private boolean isCounting;

    @Override
    @SuppressWarnings("unchecked")
    public void init(Context context) {
      Config config = context.getJobContext().getConfig();
      target = new SystemStream("kafka", config.get("bench.target"));
      isCounting = config.get("bench.work").equals("count");
      if (isCounting) {
        counts = (KeyValueStore<String, Integer>) context.getTaskContext().getStore("counts");
      }
    }

    @Override
    public void process(IncomingMessageEnvelope envelope, MessageCollector collector, TaskCoordinator coordinator)
        throws Exception {
      Map<?, ?> value = mapper.readValue((byte[]) envelope.getMessage(), Map.class);
      String key = (String) value.get("key");
      int number = (Integer) value.get("n");
      if (isCounting) {
        Integer seen = counts.get(key);
        number = seen == null ? 1 : seen + 1;
        counts.put(key, number);
      }
      byte[] message = mapper.writeValueAsBytes(Map.of("key", key, "count", number));
      collector.send(new OutgoingMessageEnvelope(target, key, key.getBytes("UTF-8"), message));
    }
  }
}
