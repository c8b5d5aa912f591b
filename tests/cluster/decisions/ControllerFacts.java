import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.ControllerContext;
import kafka.controller.Election;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import org.apache.kafka.common.TopicPartition;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Prints what Apache Kafka's own controller decides in every small case: elections, or assignments while moving. */
public class ControllerFacts {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final int IDS = 4;
    static final StringBuilder OUT = new StringBuilder();

    public static void main(String[] args) {
        if (args[0].equals("elections")) elections(); else assignments();
        System.out.print(OUT);
    }

    /** One line: replicas 0..n-1, isr, brokers alive, shutting down; then the five outcomes as leader:isr or -. */
    static void elections() {
        for (int count = 1; count <= IDS; count++)
            for (int alive = 0; alive < 1 << IDS; alive++)
                for (int stopping = 0; stopping < 1 << IDS; stopping++) {
                    if ((stopping & ~alive) != 0) continue;
                    ControllerContext context = context(first(count), alive, stopping);
                    for (List<Integer> isr : orders())
                        if (!isr.isEmpty()) elect(context, count, isr, alive, stopping);
                }
    }

    static void elect(ControllerContext context, int count, List<Integer> isr, int alive, int stopping) {
        LeaderAndIsr now = LeaderAndIsr.apply(-1, CollectionConverters.asScala(box(isr)).toList());
        Seq<Tuple2<TopicPartition, LeaderAndIsr>> asked = seq(List.of(new Tuple2<>(PARTITION, now)));
        OUT.append(count).append(' ').append(text(isr)).append(' ').append(alive).append(' ').append(stopping);
        for (boolean unclean : new boolean[] {false, true})
            print(Election.leaderForOffline(context, true,
                seq(List.of(new Tuple3<>(PARTITION, Option.apply(now), (Object) unclean)))).head());
        print(Election.leaderForReassign(context, asked).head());
        print(Election.leaderForPreferredReplica(context, asked).head());
        print(Election.leaderForControlledShutdown(context, asked).head());
        OUT.append('\n');
    }

    static void print(ElectionResult result) {
        if (result.leaderAndIsr().isEmpty()) { OUT.append(" -"); return; }
        LeaderAndIsr after = result.leaderAndIsr().get();
        if (after.leaderEpoch() != 1) throw new AssertionError("an epoch that is not one more");
        OUT.append(' ').append(after.leader()).append(':').append(text(CollectionConverters.asJava(after.isr())));
    }

    /** One line: replicas, first target, second target; then the assignment after each, as replicas/adding/removing. */
    static void assignments() {
        for (List<Integer> origin : orders())
            for (List<Integer> first : orders())
                for (List<Integer> second : orders()) {
                    if (origin.size() > 3 || origin.isEmpty() || first.isEmpty() || first.size() > 3) continue;
                    ReplicaAssignment moving = ReplicaAssignment.apply(seq(box(origin))).reassignTo(seq(box(first)));
                    OUT.append(text(origin)).append(' ').append(text(first)).append(' ').append(text(second));
                    print(moving);
                    print(moving.reassignTo(seq(box(second))));
                    OUT.append('\n');
                }
    }

    static void print(ReplicaAssignment assignment) {
        OUT.append(' ').append(text(CollectionConverters.asJava(assignment.replicas())));
        OUT.append('/').append(text(CollectionConverters.asJava(assignment.addingReplicas())));
        OUT.append('/').append(text(CollectionConverters.asJava(assignment.removingReplicas())));
        OUT.append('/').append(text(CollectionConverters.asJava(assignment.targetReplicas())));
    }

    static ControllerContext context(List<Integer> replicas, int alive, int stopping) {
        ControllerContext context = new ControllerContext();
        context.updatePartitionFullReplicaAssignment(PARTITION, ReplicaAssignment.apply(seq(box(replicas))));
        Map<Broker, Object> brokers = new HashMap<>();
        for (int id = 0; id < IDS; id++) {
            if ((alive & 1 << id) != 0)
                brokers.put(Broker.apply(id, seq(new ArrayList<EndPoint>()), Option.empty()), 1L);
            if ((stopping & 1 << id) != 0) context.shuttingDownBrokerIds().add(id);
        }
        context.setLiveBrokers(CollectionConverters.asScala(brokers));
        return context;
    }

    /** All lists without repetition of ids below IDS, the empty one too. */
    static List<List<Integer>> orders() {
        List<List<Integer>> all = new ArrayList<>(List.of(List.of()));
        for (int from = 0; from < all.size(); from++)
            for (int id = 0; id < IDS; id++)
                if (!all.get(from).contains(id)) {
                    List<Integer> longer = new ArrayList<>(all.get(from));
                    longer.add(id);
                    all.add(longer);
                }
        return all;
    }

    static List<Integer> first(int count) {
        List<Integer> ids = new ArrayList<>();
        for (int id = 0; id < count; id++) ids.add(id);
        return ids;
    }

    static List<Object> box(List<Integer> ids) { return new ArrayList<>(ids); }

    static <T> Seq<T> seq(List<T> items) { return CollectionConverters.asScala(items).toSeq(); }

    static String text(List<?> ids) {
        StringBuilder text = new StringBuilder(".");
        for (Object id : ids) text.append(id);
        return text.toString();
    }
}
