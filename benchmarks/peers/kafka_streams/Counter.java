package grete.bench;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** JSON in, a counter for each key in a store, JSON out, by the processor API until it is killed. */
public final class Counter {
  private Counter() {}

  /** Usage: Counter BOOTSTRAP SOURCE TARGET count|pass DIRECTORY key=value..., the last of Kafka Streams. */
  public static void main(String[] arguments) throws InterruptedException {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + arguments[2]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
    settings.put("auto.offset.reset", "earliest");
    for (int at = 5; at < arguments.length; at++) {
      String[] pair = arguments[at].split("=", 2);
      settings.put(pair[0], pair[1]);
    }
    boolean isCounting = arguments[3].equals("count");
    Topology topology = new Topology();
    topology.addSource("in", new StringDeserializer(), new ByteArrayDeserializer(), arguments[1]);
    topology.addProcessor("task", () -> new Task(isCounting), "in");
    if (isCounting) {
      topology.addStateStore(
          Stores.keyValueStoreBuilder(
              Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.Integer()),
          "task");
    }
    topology.addSink("out", arguments[2], new StringSerializer(), new ByteArraySerializer(), "task");
    KafkaStreams streams = new KafkaStreams(topology, settings);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
    new CountDownLatch(1).await();
  }

  private static final class Task implements Processor<String, byte[], String, byte[]> {
    private final ObjectMapper mapper = new ObjectMapper();
    private final boolean isCounting;
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, Integer> counts;

    private Task(boolean isCounting) {
      this.isCounting = isCounting;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      if (isCounting) {
        counts = context.getStateStore("counts");
      }
    }

    @Override
    public void process(Record<String, byte[]> record) {
      try {
        Map<?, ?> value = mapper.readValue(record.value(), Map.class);
        String key = (String) value.get("key");
        int number = (Integer) value.get("n");
        if (isCounting) {
          Integer seen = counts.get(key);
          number = seen == null ? 1 : seen + 1;
          counts.put(key, number);
        }
        byte[] message = mapper.writeValueAsBytes(Map.of("key", key, "count", number));
        context.forward(new Record<>(key, message, record.timestamp()));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
