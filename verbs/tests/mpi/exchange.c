// Ranks of MPI exchange messages and compare each byte of them: between two ranks, around all ranks, large ones, all-reduce, all-to-all. MPI has other means
// between ranks of one host than the network, so after each part the counters of softnic must have grown by what the ranks sent. Rank 0 prints a line for
// each part; a rank that finds something wrong prints it and aborts all ranks.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { ROUNDS = 200, SHORT = 100, LARGE = 4 << 20, SUMS = 1 << 17, EACH = 10007, MOST_RANKS = 64, TRIES = 3 };

// What the NICs of all processes in this network namespace sent, in words of four bytes.
#define COUNTER "/sys/class/infiniband/softnic0/ports/1/counters/port_xmit_data"

static int rank, ranks, reads_counter;

static void fail(const char *what, long at) {
    fprintf(stderr, "rank %d: %s: wrong at %ld\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *memory(size_t bytes) {
    void *made = malloc(bytes);
    if (made == NULL)
        fail("no memory", (long)bytes);
    return made;
}

// The byte at a place of a message.
static uint8_t byte(int from, int to, int round, long at) {
    return (uint8_t)(at * 7 + at / 251 + from * 31 + to * 17 + round * 5);
}

static void fill(uint8_t *message, long bytes, int to, int round) {
    for (long i = 0; i < bytes; i++)
        message[i] = byte(rank, to, round, i);
}

static void compare(const char *what, const uint8_t *message, long bytes, int from, int round) {
    for (long i = 0; i < bytes; i++)
        if (message[i] != byte(from, rank, round, i))
            fail(what, i);
}

// One rank of each network namespace reads its counter.
static void choose_readers(void) {
    static uint64_t all[MOST_RANKS];
    struct stat namespace;
    if (ranks > MOST_RANKS || stat("/proc/self/ns/net", &namespace) != 0)
        fail("no network namespace", ranks);
    uint64_t mine = namespace.st_ino;
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    reads_counter = 1;
    for (int before = 0; before < rank; before++)
        if (all[before] == mine)
            reads_counter = 0;
}

static long sent_by_softnic(void) {
    long words = 0, sum = 0;
    if (reads_counter) {
        FILE *file = fopen(COUNTER, "r");
        if (file == NULL || fscanf(file, "%ld", &words) != 1)
            fail("no counter of softnic", 0);
        fclose(file);
    }
    MPI_Allreduce(&words, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum * 4;
}

// The end of a part in which this rank sent so many bytes to others.
static void done(const char *what, long bytes) {
    static long before;
    long sum = 0, now = 0;
    MPI_Allreduce(&bytes, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    // A busy process may not say in time what it counted.
    for (int tries = 0; tries < TRIES && now - before < sum; tries++)
        now = sent_by_softnic();
    if (rank == 0 && now - before < sum) {
        fprintf(stderr, "%s: softnic sent %ld bytes of %ld\n", what, now - before, sum);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    before = now;
    if (rank == 0) {
        printf("%d ranks: %s: right\n", ranks, what);
        fflush(stdout);
    }
    // Nobody sends before all have read.
    MPI_Barrier(MPI_COMM_WORLD);
}

// Every rank sends to its neighbour and receives from it, one after the other.
static void to_and_fro(void) {
    const char *what = "send and receive";
    int peer = rank ^ 1;
    uint8_t out[SHORT], in[SHORT];
    for (int round = 0; peer < ranks && round < ROUNDS; round++) {
        fill(out, SHORT, peer, round);
        if (rank < peer)
            MPI_Send(out, SHORT, MPI_BYTE, peer, round, MPI_COMM_WORLD);
        MPI_Recv(in, SHORT, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank > peer)
            MPI_Send(out, SHORT, MPI_BYTE, peer, round, MPI_COMM_WORLD);
        compare(what, in, SHORT, peer, round);
    }
    done(what, peer < ranks ? ROUNDS * SHORT : 0);
}

// Every rank sends to the next one and receives from the one before, at the same time.
static void around(const char *what, long bytes, int rounds) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    uint8_t *out = memory(bytes), *in = memory(bytes);
    for (int round = 0; round < rounds; round++) {
        MPI_Request posted[2];
        MPI_Status status[2];
        int count = 0;
        fill(out, bytes, next, round);
        MPI_Irecv(in, bytes, MPI_BYTE, before, round, MPI_COMM_WORLD, &posted[0]);
        MPI_Isend(out, bytes, MPI_BYTE, next, round, MPI_COMM_WORLD, &posted[1]);
        MPI_Waitall(2, posted, status);
        MPI_Get_count(&status[0], MPI_BYTE, &count);
        if (count != bytes)
            fail(what, count);
        compare(what, in, bytes, before, round);
    }
    free(out);
    free(in);
    done(what, bytes * rounds);
}

static void all_reduce(void) {
    const char *what = "all-reduce";
    const long bytes = SUMS * sizeof(double);
    double *mine = memory(bytes), *sums = memory(bytes);
    for (long i = 0; i < SUMS; i++)
        mine[i] = (double)(rank + 1) * (double)(i % 1000);
    MPI_Allreduce(mine, sums, SUMS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    // Whole numbers: the order of the additions makes no difference.
    for (long i = 0; i < SUMS; i++)
        if (sums[i] != ranks * (ranks + 1) / 2 * (double)(i % 1000))
            fail(what, i);
    free(mine);
    free(sums);
    // The least with which it can be done, whatever the algorithm.
    done(what, 2 * (ranks - 1) * bytes / ranks);
}

static void all_to_all(void) {
    const char *what = "all-to-all";
    uint8_t *out = memory((size_t)ranks * EACH), *in = memory((size_t)ranks * EACH);
    for (int to = 0; to < ranks; to++)
        fill(out + (long)to * EACH, EACH, to, 0);
    MPI_Alltoall(out, EACH, MPI_BYTE, in, EACH, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        compare(what, in + (long)from * EACH, EACH, from, 0);
    free(out);
    free(in);
    done(what, (long)(ranks - 1) * EACH);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    choose_readers();
    to_and_fro();
    around("short messages", SHORT, ROUNDS);
    around("a large message", LARGE, 1);
    all_reduce();
    all_to_all();
    MPI_Finalize();
    return 0;
}
