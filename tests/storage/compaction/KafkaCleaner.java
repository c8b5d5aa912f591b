import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Reads lines of a partition's directory, its log start, where it is dirty from and cleanable to, a time in ms,
 * delete.retention.ms and segment.bytes; lets Apache Kafka's cleaner go over the log once, at that time, and answers with
 * where it is dirty from now.
 */
public class KafkaCleaner {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ");
            long[] numbers = new long[words.length];
            for (int i = 1; i < words.length; i++) numbers[i] = Long.parseLong(words[i]);
            System.out.println(clean(new File(words[0]), numbers[1], numbers[2], numbers[3], numbers[4], words[5], words[6]));
            System.out.flush();
        }
    }

    static long clean(File directory, long start, long dirty, long upto, long now, String retention, String segment)
            throws Exception {
        Properties properties = new Properties();
        properties.putAll(Map.of(
            "cleanup.policy", "compact", "delete.retention.ms", retention, "internal.segment.bytes", segment,
            "index.interval.bytes", "100"));
        Time time = new At(now);
        UnifiedLog log = UnifiedLog.create(
            directory, new LogConfig(properties), start, 0L, new Never(), new BrokerTopicStats(false), time, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), true,
            Optional.empty(), new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "entries", time);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(1 << 20, "MD5"), 1 << 16, 1 << 20, 0.9, throttler, time, partition -> { });
        long end = cleaner.doClean(new LogToClean(log, dirty, upto, false), now).getKey();
        log.close();
        return end;
    }

    /** A clock that stands still. */
    static class At implements Time {
        private final long now;
        At(long now) { this.now = now; }
        public long milliseconds() { return now; }
        public long nanoseconds() { return System.nanoTime(); }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    /** Does nothing in the background: what is to be deleted keeps its mark. */
    static class Never implements Scheduler {
        private static final ScheduledThreadPoolExecutor LATER = new ScheduledThreadPoolExecutor(1);
        public void startup() { }
        public void shutdown() { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return LATER.schedule(() -> { }, 1, TimeUnit.DAYS);
        }
        public void resizeThreadPool(int size) { }
    }
}
