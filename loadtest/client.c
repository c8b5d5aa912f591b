/* The load client on librdkafka.
 *
 *   produce  messages= (of each producer) size= producers=   send as fast as it goes, wait for every ack;
 *            partitions=                                     in turn to that many of them, else to partition 0
 *   consume  messages= (of each consumer) consumers=         read partition 0 from its start
 *   latency  rate= seconds= size=                            send evenly, time from produce to ack
 *
 * Every setting with a dot in its name goes to librdkafka. Only failures are reported back one by one, except where
 * latency is measured, so that the client takes as little from the broker as librdkafka can.
 */
#include "client.h"

#include <librdkafka/rdkafka.h>

static const char *address, *topic_name;
static rd_kafka_t *handles[1024];
static rd_kafka_topic_t *topics[1024];
static lane_t acks;
static volatile long delivered;
static int timed;
static long partitions = 1;

static void delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) die("not delivered: %s", rd_kafka_err2str(message->err));
    if (timed && message->_private) note(&acks, now_ns() - (int64_t)message->_private);
    delivered++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) die("%s", error);
}

static void open_handle(int index, rd_kafka_type_t type) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char name[128], error[256];
    set(conf, "bootstrap.servers", address);
    set(conf, "log_level", "3");
    if (type == RD_KAFKA_PRODUCER) {
        set(conf, "delivery.report.only.error", timed ? "false" : "true");
        rd_kafka_conf_set_dr_msg_cb(conf, delivery);
    }
    for (int i = 0; i < settings_count; i++) {
        char *equals = strchr(settings[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - settings[i]), settings[i]);
        if (strchr(name, '.')) set(conf, name, equals + 1);
    }
    handles[index] = rd_kafka_new(type, conf, error, sizeof error);
    if (!handles[index]) die("%s", error);
    topics[index] = rd_kafka_topic_new(handles[index], topic_name, NULL);
}

static void send_one(int index, long size, long turn, int64_t sent) {
    while (rd_kafka_produce(topics[index], turn % partitions, 0, payload(turn, size), size, NULL, 0, (void *)sent)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(handles[index], 1);
    }
}

static void flush_all(int index) {
    if (rd_kafka_flush(handles[index], 120000)) die("not everything was acknowledged within 120 s");
}

static void *producer(void *which) {
    long index = (long)which, size = number("size", 200), messages = number("messages", 1000);
    for (long i = 0; i < messages; i++) send_one(index, size, i, 0);
    flush_all(index);
    return NULL;
}

/* One message each beforehand: connections are open, the producer has its id, the partition its segment. */
static void produce(void) {
    int count = number("producers", 1);
    partitions = number("partitions", 1);
    for (int i = 0; i < count; i++) open_handle(i, RD_KAFKA_PRODUCER);
    for (int i = 0; i < count; i++) send_one(i, 1, 0, 0);
    for (int i = 0; i < count; i++) flush_all(i);
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    run_threads(count, producer);
    report(count * number("messages", 1000), began, cpu, NULL, 0);
}

/* Acks are noticed by a thread that does nothing else, so that the sender's sleeping is not part of a latency. */
static void *notice(void *messages) {
    while (delivered < (long)messages) rd_kafka_poll(handles[0], 100);
    return NULL;
}

static void latency(void) {
    long rate = number("rate", 2000), size = number("size", 200), messages = rate * number("seconds", 5);
    timed = 1;
    open_handle(0, RD_KAFKA_PRODUCER);
    send_one(0, size, 0, 0);
    flush_all(0);
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    pthread_t noticing;
    if (pthread_create(&noticing, NULL, notice, (void *)(messages + 1))) die("no thread to notice acks");
    for (long i = 0; i < messages; i++) {
        sleep_until(began + i * 1000000000LL / rate);
        send_one(0, size, i, now_ns());
    }
    pthread_join(noticing, NULL);
    report(messages, began, cpu, &acks, 1);
}

typedef struct {
    long left;
} reader_t;

static void seen(rd_kafka_message_t *message, void *opaque) {
    if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) die("consume: %s", rd_kafka_message_errstr(message));
    if (!message->err && --((reader_t *)opaque)->left == 0) rd_kafka_yield(NULL);
}

static void *consumer(void *which) {
    long index = (long)which;
    reader_t reader = {number("messages", 1000)};
    int64_t last = now_ns();
    if (rd_kafka_consume_start(topics[index], 0, RD_KAFKA_OFFSET_BEGINNING)) die("consume_start failed");
    while (reader.left > 0) {
        if (rd_kafka_consume_callback(topics[index], 0, 1000, seen, &reader) > 0) last = now_ns();
        if (now_ns() - last > 60000000000LL) die("nothing to read for 60 s, %ld messages are missing", reader.left);
    }
    return NULL;
}

static void consume(void) {
    int count = number("consumers", 1);
    const struct rd_kafka_metadata *metadata;
    for (int i = 0; i < count; i++) {
        open_handle(i, RD_KAFKA_CONSUMER);
        if (rd_kafka_metadata(handles[i], 0, topics[i], &metadata, 10000)) die("no metadata");
        rd_kafka_metadata_destroy(metadata);
    }
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    run_threads(count, consumer);
    report(count * number("messages", 1000), began, cpu, NULL, 0);
}

int main(int count, char **words) {
    if (count < 4) die("usage: client produce|consume|latency ADDRESS TOPIC name=value...");
    address = words[2], topic_name = words[3], settings = words + 4, settings_count = count - 4;
    fill_text();
    if (!strcmp(words[1], "produce")) produce();
    else if (!strcmp(words[1], "consume")) consume();
    else if (!strcmp(words[1], "latency")) latency();
    else die("no mode %s", words[1]);
    _exit(0); /* closing handles is not what anybody waits for */
}
