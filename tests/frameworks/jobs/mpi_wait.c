/* A rank of an MPI job that waits for the file argv[1], and then exits with argv[2] on the last rank
 * and with 0 on the others. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank, size, sum = 0;
  if (argc < 3) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("ready %d of %d, sum %d\n", rank, size, sum);
  fflush(stdout);
  while (access(argv[1], F_OK) != 0) usleep(20000);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1 && atoi(argv[2]) != 0) exit(atoi(argv[2]));
  MPI_Finalize();
  return 0;
}
