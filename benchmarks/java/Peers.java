import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Locks of Redisson, measured as benchmarks/foreign.py asks: {@code Peers LOCK ADDRESS}, where LOCK is fenced or fair.
 *
 * <p>For each line PARTIES SECONDS of standard input so many threads take turns on one lock for so long, after a
 * warm-up, and one line of JSON is printed. With one party nobody waits: its rate is of pairs. Two holders at once are
 * an error.
 */
final class Peers {
    private static final long WARM_UP_MS = 300;
    private static final int SAMPLES = 1 << 16;

    private final Supplier<RLock> locks;
    private final String name;

    private Peers(String name, RedissonClient client) {
        this.name = name;
        this.locks = switch (name) {
            case "fenced" -> () -> client.getFencedLock("redisson-fenced");
            case "fair" -> () -> client.getFairLock("redisson-fair");
            default -> throw new IllegalArgumentException("no such lock: " + name);
        };
    }

    /** What only the holder touches, but for inside and the flags. */
    private static final class Board {
        final AtomicInteger inside = new AtomicInteger();
        final AtomicInteger broken = new AtomicInteger();
        volatile boolean measured;
        volatile boolean stopped;
        volatile int last;
        volatile long released;
        long handoffs;
        long total;
        final long[] turns;
        final double[] tookUs = new double[SAMPLES];

        Board(int parties) {
            turns = new long[parties];
        }

        void turn(int me) {
            long now = System.nanoTime();
            if (!inside.compareAndSet(0, me)) {
                broken.incrementAndGet();
            }
            boolean counts = measured;
            if (counts) {
                turns[me - 1]++;
            }
            if (last != me) {
                total++;
                if (counts) {
                    if (handoffs < SAMPLES) {
                        tookUs[(int) handoffs] = (now - released) / 1000.0;
                    }
                    handoffs++;
                }
                last = me;
            }
            if (!inside.compareAndSet(me, 0)) {
                broken.incrementAndGet();
            }
            released = System.nanoTime();
        }
    }

    private String play(int parties, double seconds) throws Exception {
        Board board = new Board(parties);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread[] threads = new Thread[parties];
        for (int number = 0; number < parties; number++) {
            int me = number + 1;
            threads[number] = new Thread(() -> takeTurns(board, me));
            threads[number].setUncaughtExceptionHandler((thread, error) -> failed.set(error));
            threads[number].start();
        }
        Thread.sleep(WARM_UP_MS);
        long began = System.nanoTime();
        board.measured = true;
        Thread.sleep((long) (seconds * 1000));
        board.measured = false;
        double took = (System.nanoTime() - began) / 1e9;
        board.stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed.get() != null) {
            throw new IllegalStateException("a party failed", failed.get());
        }
        if (board.broken.get() > 0) {
            throw new IllegalStateException(name + ": two parties held the lock at once");
        }
        return json(board, took);
    }

    private void takeTurns(Board board, int me) {
        while (!board.stopped) {
            RLock lock = locks.get();
            lock.lock();
            try {
                board.turn(me);
            } finally {
                lock.unlock();
            }
        }
    }

    private static String json(Board board, double seconds) {
        StringJoiner took = new StringJoiner(",", "[", "]");
        for (int number = 0; number < Math.min(board.handoffs, SAMPLES); number++) {
            took.add(Double.toString(board.tookUs[number]));
        }
        long[] turns = board.turns.clone();
        Arrays.sort(turns);
        return "{\"turns\":" + Arrays.stream(turns).sum() + ",\"handoffs\":" + board.handoffs + ",\"seconds\":" + seconds
            + ",\"most\":" + turns[turns.length - 1] + ",\"fewest\":" + turns[0] + ",\"took_us\":" + took
            + ",\"total\":" + board.total + "}";
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            throw new IllegalArgumentException("usage: Peers fenced|fair ADDRESS");
        }
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + arguments[1]);
        RedissonClient client = Redisson.create(config);
        Peers peers = new Peers(arguments[0], client);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            System.out.println(peers.play(Integer.parseInt(words[0]), Double.parseDouble(words[1])));
        }
        client.shutdown();
    }
}
