/* The load client without a library: prepared Kafka frames over plain sockets, one thread, one epoll.
 *
 *   produce  messages= (in all) size= batch= connections= partitions= inflight= idle=
 *            closed loop: every connection keeps `inflight` Produce requests (v3, acks=1) under way, each with one
 *            batch; connection c begins at partition c and goes round them; `idle` more connections are only open;
 *            with topics= the partitions are spread over TOPIC.0, TOPIC.1 and so on; with idempotent=1 (and one
 *            partition) every connection is a producer with an id, sequences and acks=all; rounds= do it so often,
 *            each with its own "ready", for opening thousands of connections takes a while
 *   tail     rate= seconds= size= consumers= from=
 *            one connection sends a message at each tick, `consumers` connections wait in Fetch (v4) at the end of
 *            partition 0 (at offset `from`); the time a message was sent is in its first eight bytes, so latencies are end to end
 *
 * A librdkafka handle is three threads, so that thousands of connections, or a hundred consumers, would measure the
 * client. Here a request costs the client a few microseconds, whatever the broker.
 */
#include "client.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define FRAME_MAX (1 << 20)

typedef struct {
    int fd, under_way, partition;
    long offset, to_send; /* tail: next offset to fetch; produce: requests it may still send */
    int64_t producer;     /* idempotent: its id and epoch, and the next sequence */
    int epoch, sequence;
    char *in;
    size_t have, room;
} connection_t;

static const char *topic_name;
static struct sockaddr_in broker;
static uint32_t crc_table[256];
static lane_t delays;

/* ---- writing frames ---- */

static char *put16(char *at, int value) { *(uint16_t *)at = htobe16(value); return at + 2; }
static char *put32(char *at, long value) { *(uint32_t *)at = htobe32(value); return at + 4; }
static char *put64(char *at, int64_t value) { *(uint64_t *)at = htobe64(value); return at + 8; }
static char *put_bytes(char *at, const void *bytes, size_t count) { memcpy(at, bytes, count); return at + count; }
static char *put_string(char *at, const char *word) { return put_bytes(put16(at, strlen(word)), word, strlen(word)); }
static int get16(const char *at) { return (int16_t)be16toh(*(uint16_t *)at); }
static long get32(const char *at) { return (int32_t)be32toh(*(uint32_t *)at); }
static int64_t get64(const char *at) { return be64toh(*(uint64_t *)at); }

static char *put_varint(char *at, long value) {
    unsigned long zigzag = value < 0 ? -2 * value - 1 : 2 * value;
    for (; zigzag > 127; zigzag >>= 7) *at++ = zigzag | 128;
    *at++ = zigzag;
    return at;
}

static uint32_t crc32c(const char *bytes, size_t count) {
    uint32_t crc = ~0u;
    if (!crc_table[1])
        for (uint32_t i = 0, c; i < 256; crc_table[i++] = c) {
            c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78 ^ c >> 1 : c >> 1;
        }
    while (count--) crc = crc_table[(crc ^ *bytes++) & 255] ^ crc >> 8;
    return ~crc;
}

/* One record batch (magic 2) of `count` records of `size` bytes; `stamp` goes into the first eight of each. */
static char *put_batch(char *start, int count, long size, int64_t stamp) {
    struct timespec wall;
    char record[FRAME_MAX / 8], *at = start + 61;
    clock_gettime(CLOCK_REALTIME, &wall);
    for (int i = 0; i < count; i++) {
        char *end = put_varint(put_varint(put_varint(record, 0), 0), i); /* attributes are a zero too */
        end = put_varint(put_varint(end, -1), size);                     /* no key */
        memcpy(end, payload(i, size), size);
        if (stamp) put64(end, stamp);
        end += size;
        *end++ = 0; /* no headers */
        at = put_bytes(put_varint(at, end - record), record, end - record);
    }
    int64_t ms = wall.tv_sec * 1000LL + wall.tv_nsec / 1000000;
    char *head = put32(put32(put64(start, 0), at - start - 12), 0);
    head[0] = 2; /* the magic; the checksum after it comes last */
    head = put64(put64(put32(put16(head + 5, 0), count - 1), ms), ms);
    put32(put32(put16(put64(head, -1), -1), -1), count);
    put32(start + 17, crc32c(start + 21, at - start - 21));
    return at;
}

static char *put_header(char *at, int api, int version) { return put16(put32(put16(put16(at + 4, api), version), 1), -1); }

static size_t produce_frame(char *frame, const char *topic, int partition, int count, long size, int64_t stamp) {
    char *at = put_header(frame, 0, 3);
    at = put32(put16(put16(at, -1), number("idempotent", 0) ? -1 : 1), 30000);
    at = put32(put32(put_string(put32(at, 1), topic), 1), partition);
    char *end = put_batch(at + 4, count, size, stamp);
    put32(at, end - at - 4);
    put32(frame, end - frame - 4);
    return end - frame;
}

static size_t fetch_frame(char *frame, long offset) {
    char *at = put_header(frame, 1, 4);
    at = put32(put32(put32(put32(at, -1), 500), 1), 1 << 20);
    *at++ = 0;
    at = put32(put32(put_string(put32(at, 1), topic_name), 1), 0);
    at = put32(put64(at, offset), 1 << 20);
    put32(frame, at - frame - 4);
    return at - frame;
}

/* ---- connections ---- */

static void send_all(connection_t *one, const char *bytes, size_t count) {
    while (count) {
        ssize_t sent = send(one->fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0) die("send: %s", strerror(errno));
        bytes += sent, count -= sent;
    }
}

static void open_connection(connection_t *one, int epoll) {
    int yes = 1;
    one->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (one->fd < 0) die("socket: %s", strerror(errno));
    if (connect(one->fd, (struct sockaddr *)&broker, sizeof broker)) die("connect: %s", strerror(errno));
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    epoll_ctl(epoll, EPOLL_CTL_ADD, one->fd, &event);
}

/* Takes what has arrived; a buffer stays as small as its answers, for there may be thousands. */
static void receive(connection_t *one) {
    if (one->room - one->have < 1024) one->in = realloc(one->in, one->room = 2 * one->room + 4096);
    ssize_t got = recv(one->fd, one->in + one->have, one->room - one->have, 0);
    if (got <= 0) die("the broker closed a connection");
    one->have += got;
}

/* The next whole answer (after its length), or NULL; `used` is where the one after it begins. */
static char *answer(connection_t *one, size_t *used) {
    char *frame = one->in + *used;
    if (one->have - *used < 4 || one->have - *used < (size_t)get32(frame) + 4) return NULL;
    *used += get32(frame) + 4;
    return frame + 4;
}

static void forget(connection_t *one, size_t used) {
    memmove(one->in, one->in + used, one->have - used);
    one->have -= used;
}

/* A full backlog drops connections, which then take a second each. An answer on the latest shows it is empty again. */
static void open_all(connection_t *all, int count, int epoll) {
    char frame[64], *end = put_header(frame, 18, 0);
    put32(frame, end - frame - 4);
    for (int i = 0; i < count; i++) {
        size_t used = 0;
        open_connection(&all[i], epoll);
        if (i % 32 != 31) continue;
        send_all(&all[i], frame, end - frame);
        while (!answer(&all[i], &used)) receive(&all[i]);
        forget(&all[i], used);
    }
}

static char *past_topic(char *answer, int throttle) {
    char *at = answer + 4 + throttle + 4;
    return at + 2 + get16(at) + 4; /* at the partition's index */
}

static void check_produced(char *found) {
    int error = get16(past_topic(found, 0) + 4);
    if (error) die("Produce was answered with error %d", error);
}

/* ---- produce ---- */

static char *frames[1 << 14]; /* at most ten topics of 1,638 partitions */
static size_t frame_bytes, batch_at; /* batch_at: where the batch begins in frame 0, where that changes */
static int partitions, inflight;

static void next_batch(connection_t *one, char *start, int count) {
    put32(put16(put64(start + 43, one->producer), one->epoch), one->sequence);
    put32(start + 17, crc32c(start + 21, frames[0] + frame_bytes - start - 21));
    one->sequence += count;
}

/* The answer to InitProducerId (v0); a broker that has just started may want it asked again. */
static int identified(connection_t *one) {
    char frame[64], *at = put_header(frame, 22, 0), *found;
    size_t used = 0;
    at = put32(put16(at, -1), 60000);
    put32(frame, at - frame - 4);
    send_all(one, frame, at - frame);
    while (!(found = answer(one, &used))) receive(one);
    int error = get16(found + 8);
    one->producer = get64(found + 10), one->epoch = get16(found + 18);
    forget(one, used);
    if (error && error != 14 && error != 15) die("InitProducerId was answered with error %d", error);
    return !error;
}

static void fill(connection_t *one) {
    while (one->under_way < inflight && one->to_send > 0) {
        if (batch_at) next_batch(one, frames[0] + batch_at, number("batch", 1));
        send_all(one, frames[one->partition], frame_bytes);
        one->partition = (one->partition + 1) % partitions;
        one->under_way++, one->to_send--;
    }
}

static long take_acks(connection_t *one) {
    long count = 0;
    size_t used = 0;
    receive(one);
    for (char *found; (found = answer(one, &used)); count++) check_produced(found);
    forget(one, used);
    one->under_way -= count;
    return count;
}

static void run_produce(connection_t *all, int count, int epoll, long requests) {
    struct epoll_event events[256];
    for (int i = 0; i < count; i++) all[i].to_send = requests / count + (i < requests % count);
    for (int i = 0; i < count; i++) fill(&all[i]);
    while (requests > 0)
        for (int i = 0, many = epoll_wait(epoll, events, 256, 60000); i < many || (!many && (die("no ack in 60 s"), 0)); i++) {
            requests -= take_acks(events[i].data.ptr);
            fill(events[i].data.ptr);
        }
}

/* All topics' names are equally long, so that all frames are. */
static void prepare(int topics, long batch, long size) {
    char name[256];
    for (int p = 0; p < partitions; p++) {
        snprintf(name, sizeof name, topics ? "%s.%d" : "%s", topic_name, topics ? p % topics : 0);
        frames[p] = malloc(batch * (size + 32) + 512);
        frame_bytes = produce_frame(frames[p], name, topics ? p / topics : p, batch, size, 0);
    }
}

static void produce(int epoll) {
    long size = number("size", 200), batch = number("batch", 1), messages = number("messages", 1000);
    int count = number("connections", 1);
    partitions = number("partitions", 1);
    connection_t *all = calloc(count, sizeof *all);
    prepare(number("topics", 0), batch, size);
    open_all(all, count, epoll);
    for (int i = 0; i < count; i++) all[i].partition = i % partitions;
    connection_t *idle = calloc(number("idle", 0) + 1, sizeof *idle);
    open_all(idle, number("idle", 0), epoll);
    if (number("idempotent", 0)) {
        batch_at = 14 + 8 + 4 + 2 + strlen(topic_name) + 4 + 4 + 4; /* header, acks and so on, topic, partition */
        for (int i = 0; i < count; i++)
            while (!identified(&all[i])) usleep(100000);
    }
    inflight = 1;
    run_produce(all, count, epoll, count > partitions ? count : partitions); /* every one has worked once */
    inflight = number("inflight", 1);
    for (long round = number("rounds", 1); round > 0; round--) {
        ready();
        double cpu = cpu_seconds();
        int64_t began = now_ns();
        run_produce(all, count, epoll, messages / batch);
        report(messages / batch * batch, began, cpu, NULL, 0);
    }
}

/* ---- tail ---- */

static long varint(char **at) {
    unsigned long value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (unsigned long)(byte & 127) << shift;
        if (byte < 128) return value >> 1;
    }
}

/* All batches of one record each, as this client sends them. */
static long take_records(connection_t *one, char *at, char *end, int64_t now) {
    long count = 0;
    while (end - at > 61 && end - at >= get32(at + 8) + 12) {
        char *next = at + get32(at + 8) + 12, *record = at + 61;
        if (get64(at) >= one->offset) {
            varint(&record), record += 2, varint(&record), record++, varint(&record);
            note(&delays, now - get64(record));
            one->offset = get64(at) + 1;
            count++;
        }
        at = next;
    }
    return count;
}

static void ask(connection_t *one) {
    char frame[512];
    send_all(one, frame, fetch_frame(frame, one->offset));
}

static long take_fetched(connection_t *one) {
    long count = 0;
    size_t used = 0;
    receive(one);
    int64_t now = now_ns();
    for (char *found; (found = answer(one, &used)); ask(one)) {
        char *at = past_topic(found, 4);
        if (get16(at + 4)) die("Fetch was answered with error %d", get16(at + 4));
        at += 22; /* index, error, high watermark, last stable offset: now the aborted transactions */
        at += 4 + (get32(at) > 0 ? get32(at) * 16 : 0);
        count += take_records(one, at + 4, at + 4 + get32(at), now);
    }
    forget(one, used);
    return count;
}

static void tick(connection_t *sender, long *sent, long due) {
    char frame[4096];
    for (; *sent < due; ++*sent) send_all(sender, frame, produce_frame(frame, topic_name, 0, 1, number("size", 200), now_ns()));
}

static int every(long rate, int epoll) {
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec when = {{0, 1000000000 / rate}, {0, 1000000000 / rate}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    timerfd_settime(timer, 0, &when, NULL);
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
    return timer;
}

static void run_tail(connection_t *all, int count, int epoll, long messages, long rate) {
    struct epoll_event events[256];
    long sent = 0, due = 0, left = messages * count;
    int timer = every(rate, epoll);
    while (left > 0) {
        int many = epoll_wait(epoll, events, 256, 60000);
        if (many <= 0) die("%ld deliveries are missing after 60 s", left);
        for (int i = 0; i < many; i++) {
            uint64_t ticks;
            if (events[i].data.ptr == all) take_acks(all);
            else if (events[i].data.ptr) left -= take_fetched(events[i].data.ptr);
            else if (read(timer, &ticks, 8) == 8) tick(all, &sent, (due += ticks) < messages ? due : messages);
        }
    }
    close(timer);
}

/* Connection 0 sends. A first short run finds the end of the partition and warms both sides; it is not counted. */
static void tail(int epoll) {
    int count = number("consumers", 1);
    long rate = number("rate", 2000), messages = rate * number("seconds", 5);
    connection_t *all = calloc(count + 1, sizeof *all);
    open_all(all, count + 1, epoll);
    for (int i = 1; i <= count; i++) all[i].offset = number("from", 0), ask(&all[i]);
    run_tail(all, count, epoll, rate, rate);
    delays.count = 0;
    ready();
    double cpu = cpu_seconds();
    int64_t began = now_ns();
    run_tail(all, count, epoll, messages, rate);
    report(messages * count, began, cpu, &delays, 1);
}

int main(int count, char **words) {
    if (count < 4) die("usage: raw produce|tail HOST:PORT TOPIC name=value...");
    char *colon = strchr(words[2], ':');
    if (!colon) die("%s has no port", words[2]);
    broker = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
    *colon = 0;
    if (!inet_aton(words[2], &broker.sin_addr)) die("%s is not an IPv4 address", words[2]);
    topic_name = words[3], settings = words + 4, settings_count = count - 4;
    fill_text();
    int epoll = epoll_create1(0);
    if (!strcmp(words[1], "produce")) produce(epoll);
    else if (!strcmp(words[1], "tail")) tail(epoll);
    else die("no mode %s", words[1]);
    return 0;
}
