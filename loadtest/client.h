/* What the load clients share: settings, the clock, latencies, and the start signal.
 *
 * A client is called as `client MODE ADDRESS TOPIC name=value...`, gets ready (connects, sends what is not counted),
 * prints "ready", waits for a line on standard input, works, and prints one JSON object. So the caller can read the
 * broker's CPU just before and just after the work. Any failure is one line on standard error and exit code 1.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static char **settings;
static int settings_count;

static inline void die(const char *format, ...) {
    va_list more;
    va_start(more, format);
    vfprintf(stderr, format, more);
    va_end(more);
    fputc('\n', stderr);
    _exit(1);
}

static inline long number(const char *name, long fallback) {
    size_t length = strlen(name);
    for (int i = 0; i < settings_count; i++)
        if (!strncmp(settings[i], name, length) && settings[i][length] == '=') return atol(settings[i] + length + 1);
    return fallback;
}

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void sleep_until(int64_t ns) {
    struct timespec then = {ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
}

/* Text that compresses about as records of a business do: words of a small vocabulary in random order. */
#define TEXT_BYTES (1 << 20)
static char text[TEXT_BYTES + (1 << 16)];

static inline void fill_text(void) {
    char word[512][12];
    unsigned seed = 1;
    for (int i = 0; i < 512; i++)
        for (int j = 0; j < 12; j++) word[i][j] = j == 11 ? ' ' : 'a' + rand_r(&seed) % 26;
    for (size_t at = 0; at + 12 <= sizeof text; at += 12) memcpy(text + at, word[rand_r(&seed) % 512], 12);
}

static inline char *payload(long index, long size) { return text + (index * 1009 + size) % TEXT_BYTES; }

/* Latencies in nanoseconds, one lane for each thread, so that no lock is needed. */
typedef struct {
    int64_t *ns;
    long count, room;
} lane_t;

static inline void note(lane_t *lane, int64_t ns) {
    if (lane->count == lane->room) {
        lane->room = lane->room ? 2 * lane->room : 4096;
        lane->ns = realloc(lane->ns, lane->room * sizeof *lane->ns);
    }
    lane->ns[lane->count++] = ns;
}

static inline int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline void ready(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) die("stdin ended before \"go\"");
}

static inline double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* The one JSON object: messages, seconds, this client's CPU since `cpu`, and the percentiles of `lanes` in µs. */
static inline void report(long messages, int64_t began, double cpu, lane_t *lanes, int count) {
    double seconds = (now_ns() - began) / 1e9;
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"client_cpu\": %.6f", messages, seconds, cpu_seconds() - cpu);
    lane_t all = {0};
    for (int i = 0; i < count; i++)
        for (long j = 0; j < lanes[i].count; j++) note(&all, lanes[i].ns[j]);
    if (all.count) {
        qsort(all.ns, all.count, sizeof *all.ns, ascending);
        const double share[] = {0.5, 0.99, 0.999};
        const char *name[] = {"p50", "p99", "p999"};
        for (int i = 0; i < 3; i++)
            printf(", \"%s\": %.1f", name[i], all.ns[(long)(share[i] * (all.count - 1))] / 1e3);
    }
    puts("}");
    fflush(stdout);
}

static inline void run_threads(int count, void *(*work)(void *)) {
    pthread_t threads[count];
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i)) die("no thread for client %ld", i);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

#endif
