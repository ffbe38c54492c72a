// Loops over the threads of the calling thread's OpenMP pool. Where that is one thread they do not enter OpenMP's runtime, which
// allocates a team for every parallel region of one thread (libgomp), and a step must not allocate.
#pragma once

#include <omp.h>

#include <cstdint>

namespace consist::cpu {

/// body(i) for i in [0, count), each thread one stretch. `body` is copied to every thread: capture by value.
template <typename Body>
void parallel_for(std::int64_t count, Body body) {
  if (omp_get_max_threads() == 1) {
    Body own = body;  // whose address goes nowhere, so that what it captured stays in registers
    for (std::int64_t i = 0; i < count; ++i) own(i);
    return;
  }
#pragma omp parallel for schedule(static) firstprivate(body)
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

/// The same for element-wise bodies, of which vector lanes may run several at once.
template <typename Body>
void parallel_for_simd(std::int64_t count, Body body) {
  if (omp_get_max_threads() == 1) {
    Body own = body;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) own(i);
    return;
  }
#pragma omp parallel for simd schedule(static) firstprivate(body)
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

/// body(row, column) for the elements of a [rows, columns] matrix; each thread takes whole rows.
template <typename Body>
void parallel_for_elements(std::int64_t rows, std::int64_t columns, Body body) {
  parallel_for(rows, [=](std::int64_t row) {
    Body own = body;
#pragma omp simd
    for (std::int64_t column = 0; column < columns; ++column) own(row, column);
  });
}

}  // namespace consist::cpu
