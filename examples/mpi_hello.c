/* The least that an MPI program can do: say who is there, and add up the ranks.
 *
 *   mpicc -O2 -o mpi_hello examples/mpi_hello.c            on every node, at the same path
 *   rdzv launch --framework openmpi --nnodes 2 --nproc-per-node 2 -- ./mpi_hello
 *   rdzv launch --framework mpich --nnodes 2 --nproc-per-node 2 -- ./mpi_hello
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank, world, mine, sum = 0;
  char host[256] = "", line[512];

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  gethostname(host, sizeof host - 1);

  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != world * (world + 1) / 2) {
    fprintf(stderr, "rank %d: the sum over %d ranks is %d\n", rank, world, sum);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  /* One write for the whole line: ranks that share a pipe do not interleave theirs. */
  int length = snprintf(line, sizeof line, "RESULT framework=mpi rank=%d world=%d host=%s value=%d ok\n",
                        rank, world, host, sum);
  if (write(STDOUT_FILENO, line, (size_t)length) != length) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
