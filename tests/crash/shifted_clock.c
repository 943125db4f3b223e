/* A library to preload: the wall clock of a process, shifted by the seconds in the file that SHIFT_FILE names.
 * The monotonic clock stays as it is, as on a machine whose time is set. Used by tests/crash/flood.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t shift(void) {
    static __thread int is_reading;
    const char *name = getenv("SHIFT_FILE");
    long long seconds = 0;
    if (name == NULL || is_reading) return 0;
    is_reading = 1;
    FILE *file = fopen(name, "r");
    if (file != NULL) {
        if (fscanf(file, "%lld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    is_reading = 0;
    return (time_t)seconds;
}

int clock_gettime(clockid_t id, struct timespec *result) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, result);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) result->tv_sec += shift();
    return code;
}

int gettimeofday(struct timeval *result, void *zone) {
    struct timespec now;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result != NULL) *result = now.tv_sec;
    return now.tv_sec;
}
