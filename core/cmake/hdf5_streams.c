// The streams that a copy of HDF5's archive names (ConsistPortable.cmake).
#include <stdio.h>

__attribute__((visibility("hidden"))) FILE* consist_hdf5_stderr;
__attribute__((visibility("hidden"))) FILE* consist_hdf5_stdout;

__attribute__((constructor)) static void set_streams(void) {
  consist_hdf5_stderr = stderr;
  consist_hdf5_stdout = stdout;
}
