/* The load client for RabbitMQ, on librabbitmq: durable queues, persistent messages, publisher confirms.
 *
 *   produce  messages= (of each producer) size= producers= inflight=   wait for every confirm
 *   consume  messages= (of each consumer) consumers=                   manual acks, a thousand at a time
 *   latency  rate= seconds= size=                                      publish evenly, time to the confirm
 *   tail     rate= seconds= size= consumers=                           each consumer has a queue on one fanout exchange
 *   delete   consumers=                                                remove the queues and the exchange
 *
 * A thread and a connection for each producer and consumer, as librabbitmq wants it.
 */
#define _GNU_SOURCE
#include "client.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <poll.h>

#define WINDOW (1 << 14)

static char host[64];
static int port;
static const char *queue;
static pthread_barrier_t opened, begun;
static lane_t lanes[1024];
static long uncounted; /* tail: deliveries of the first second warm both sides */

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) die("%s: no good answer from RabbitMQ (%d)", what, reply.reply_type);
}

static amqp_connection_state_t open_connection(void) {
    amqp_connection_state_t one = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(one);
    if (!socket || amqp_socket_open(socket, host, port)) die("cannot connect to %s:%d", host, port);
    check(amqp_login(one, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(one, 1);
    check(amqp_get_rpc_reply(one), "channel");
    return one;
}

static void declare(amqp_connection_state_t one, const char *name) {
    amqp_queue_declare(one, 1, amqp_cstring_bytes(name), 0, 1, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(one), "queue");
}

static amqp_connection_state_t open_producer(void) {
    amqp_connection_state_t one = open_connection();
    amqp_confirm_select(one, 1);
    check(amqp_get_rpc_reply(one), "confirms");
    return one;
}

static void publish(amqp_connection_state_t one, const char *exchange, const void *bytes, long size) {
    amqp_basic_properties_t persistent = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    amqp_bytes_t body = {size, (void *)bytes};
    if (amqp_basic_publish(one, 1, amqp_cstring_bytes(exchange), amqp_cstring_bytes(queue), 0, 0, &persistent, body))
        die("publish failed");
}

/* Take confirms that are there (wait for one if `wait`); returns the highest message confirmed. */
static long confirms(amqp_connection_state_t one, long confirmed, int wait) {
    struct timeval at_once = {0, 0}, minute = {60, 0};
    amqp_frame_t frame;
    int status;
    while ((status = amqp_simple_wait_frame_noblock(one, &frame, wait ? &minute : &at_once)) == AMQP_STATUS_OK) {
        if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            die("not a confirm: method %x", frame.payload.method.id);
        amqp_basic_ack_t *ack = frame.payload.method.decoded;
        /* Singles may overtake each other; their number is what counts, and a multiple says it outright. */
        confirmed = ack->multiple ? ((long)ack->delivery_tag > confirmed ? (long)ack->delivery_tag : confirmed) : confirmed + 1;
        amqp_maybe_release_buffers(one);
        wait = 0;
    }
    if (status != AMQP_STATUS_TIMEOUT || wait) die("no confirm: %s", amqp_error_string2(status));
    return confirmed;
}

static void *producer(void *which) {
    long messages = number("messages", 1000), size = number("size", 200), window = number("inflight", WINDOW);
    amqp_connection_state_t one = open_producer();
    declare(one, queue);
    (void)which;
    publish(one, "", payload(0, 1), 1);
    long confirmed = confirms(one, 0, 1), sent = 1;
    pthread_barrier_wait(&opened);
    pthread_barrier_wait(&begun);
    while (confirmed <= messages) {
        int full = sent > messages || sent - confirmed >= window;
        if (!full) publish(one, "", payload(sent++, size), size);
        if (full || sent % 64 == 0) confirmed = confirms(one, confirmed, full);
    }
    return NULL;
}

static void ack_all(amqp_connection_state_t one, uint64_t tag) {
    if (amqp_basic_ack(one, 1, tag, 1)) die("ack failed");
}

static amqp_connection_state_t open_consumer(const char *name) {
    amqp_connection_state_t one = open_connection();
    amqp_basic_qos(one, 1, 0, 5000, 0);
    check(amqp_get_rpc_reply(one), "qos");
    amqp_basic_consume(one, 1, amqp_cstring_bytes(name), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(one), "consume");
    return one;
}

static void *consumer(void *which) {
    long left = number("messages", 1000), every = left / 5 < 1000 ? left / 5 + 1 : 1000;
    (void)which;
    pthread_barrier_wait(&opened);
    pthread_barrier_wait(&begun);
    amqp_connection_state_t one = open_consumer(queue);
    while (left > 0) {
        amqp_envelope_t envelope;
        struct timeval minute = {60, 0};
        check(amqp_consume_message(one, &envelope, &minute, 0), "delivery");
        if (--left % every == 0) ack_all(one, envelope.delivery_tag);
        amqp_destroy_envelope(&envelope);
        amqp_maybe_release_buffers(one);
    }
    amqp_channel_close(one, 1, AMQP_REPLY_SUCCESS); /* what was prefetched too much goes back */
    return NULL;
}

static void *tail_consumer(void *which) {
    long index = (long)which, left = number("rate", 2000) * number("seconds", 5) + uncounted;
    char name[256];
    snprintf(name, sizeof name, "%s.%ld", queue, index);
    amqp_connection_state_t one = open_consumer(name);
    pthread_barrier_wait(&opened);
    for (long seen = 0; seen < left; seen++) {
        amqp_envelope_t envelope;
        struct timeval minute = {60, 0};
        check(amqp_consume_message(one, &envelope, &minute, 0), "delivery");
        if (seen >= uncounted) note(&lanes[index], now_ns() - *(int64_t *)envelope.message.body.bytes);
        ack_all(one, envelope.delivery_tag);
        amqp_destroy_envelope(&envelope);
        amqp_maybe_release_buffers(one);
    }
    return NULL;
}

static void start(pthread_t *threads, int count, void *(*work)(void *)) {
    pthread_barrier_init(&opened, NULL, count + 1);
    pthread_barrier_init(&begun, NULL, count + 1);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i)) die("no thread %ld", i);
    pthread_barrier_wait(&opened);
}

static void run(const char *many, void *(*work)(void *)) {
    int count = number(many, 1);
    pthread_t threads[count];
    start(threads, count, work);
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    pthread_barrier_wait(&begun);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    report(count * number("messages", 1000), began, cpu, NULL, 0);
}

/* One thread sends and waits for confirms in between; message i is delivery tag i + 1 of its connection. */
static int64_t *sent_at;

static void confirmed_one(lane_t *lane, long tag) {
    if (!sent_at[tag - 1]) return;
    note(lane, now_ns() - sent_at[tag - 1]);
    sent_at[tag - 1] = 0;
}

/* librabbitmq waits in whole milliseconds, and would spin for what is left of one. */
static void await_bytes(amqp_connection_state_t one, int64_t ns) {
    struct pollfd socket = {.fd = amqp_get_sockfd(one), .events = POLLIN};
    struct timespec most = {ns > 0 ? ns / 1000000000 : 0, ns > 0 ? ns % 1000000000 : 0};
    ppoll(&socket, 1, &most, NULL);
}

static long confirmed(amqp_connection_state_t one, lane_t *lane, int64_t until, long lowest) {
    amqp_frame_t frame;
    struct timeval at_once = {0, 0};
    if (!amqp_frames_enqueued(one) && !amqp_data_in_buffer(one)) await_bytes(one, until - now_ns());
    if (amqp_simple_wait_frame_noblock(one, &frame, &at_once) != AMQP_STATUS_OK) return lowest;
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD) die("not a confirm");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    for (long tag = ack->multiple ? lowest : (long)ack->delivery_tag; tag <= (long)ack->delivery_tag; tag++)
        confirmed_one(lane, tag);
    if (ack->multiple) lowest = ack->delivery_tag + 1;
    amqp_maybe_release_buffers(one);
    return lowest;
}

static void pace(amqp_connection_state_t one, const char *exchange, long from, long messages, lane_t *lane) {
    long rate = number("rate", 2000), size = number("size", 200), target = lane->count + messages, lowest = from + 1;
    int64_t began = now_ns();
    char body[size];
    for (long i = 0; lane->count < target;) {
        if (i < messages && now_ns() >= began + i * 1000000000LL / rate) {
            memcpy(body, payload(i, size), size);
            memcpy(body, &(int64_t){sent_at[from + i] = now_ns()}, 8);
            publish(one, exchange, body, size);
            i++;
        }
        lowest = confirmed(one, lane, i < messages ? began + i * 1000000000LL / rate : now_ns() + 100000000, lowest);
        if (now_ns() - began > (messages / rate + 60) * 1000000000LL) die("confirms are missing after 60 s");
    }
}

static void paced(const char *exchange, lane_t *measured, int lanes_count) {
    lane_t confirms_seen = {0};
    long messages = number("rate", 2000) * number("seconds", 5), copies = lanes_count;
    amqp_connection_state_t one = open_producer();
    sent_at = calloc(messages + uncounted, sizeof *sent_at);
    pace(one, exchange, 0, uncounted, &confirms_seen);
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    confirms_seen.count = 0;
    pace(one, exchange, uncounted, messages, &confirms_seen);
    if (measured)
        while (1) {
            long have = 0;
            for (int i = 0; i < lanes_count; i++) have += measured[i].count;
            if (have >= messages * copies) break;
            sleep_until(now_ns() + 1000000);
        }
    report(messages * copies, began, cpu, measured ? measured : &confirms_seen, lanes_count);
}

static void tail(void) {
    int count = number("consumers", 1);
    char name[256];
    pthread_t threads[count];
    amqp_connection_state_t one = open_connection();
    amqp_exchange_declare(one, 1, amqp_cstring_bytes(queue), amqp_cstring_bytes("fanout"), 0, 1, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(one), "exchange");
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%d", queue, i);
        declare(one, name);
        amqp_queue_bind(one, 1, amqp_cstring_bytes(name), amqp_cstring_bytes(queue), amqp_empty_bytes, amqp_empty_table);
        check(amqp_get_rpc_reply(one), "bind");
    }
    start(threads, count, tail_consumer);
    paced(queue, lanes, count);
}

static void delete(void) {
    char name[256];
    amqp_connection_state_t one = open_connection();
    for (int i = -1; i < number("consumers", 0); i++) {
        snprintf(name, sizeof name, i < 0 ? "%s" : "%s.%d", queue, i);
        amqp_queue_delete(one, 1, amqp_cstring_bytes(name), 0, 0);
        check(amqp_get_rpc_reply(one), "queue.delete");
    }
    amqp_exchange_delete(one, 1, amqp_cstring_bytes(queue), 0);
    check(amqp_get_rpc_reply(one), "exchange.delete");
}

static void latency(void) {
    declare(open_connection(), queue);
    paced("", NULL, 1);
}

int main(int count, char **words) {
    if (count < 4) die("usage: amqp produce|consume|latency|tail|delete HOST:PORT QUEUE name=value...");
    if (sscanf(words[2], "%63[^:]:%d", host, &port) != 2) die("%s is not HOST:PORT", words[2]);
    queue = words[3], settings = words + 4, settings_count = count - 4;
    uncounted = number("rate", 2000);
    fill_text();
    if (!strcmp(words[1], "produce")) run("producers", producer);
    else if (!strcmp(words[1], "consume")) run("consumers", consumer);
    else if (!strcmp(words[1], "latency")) latency();
    else if (!strcmp(words[1], "tail")) tail();
    else if (!strcmp(words[1], "delete")) delete();
    else die("no mode %s", words[1]);
    fflush(stdout);
    _exit(0);
}
