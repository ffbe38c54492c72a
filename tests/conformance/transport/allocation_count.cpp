#include "tests/conformance/transport/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {
thread_local std::int64_t count = 0;
}

void* operator new(std::size_t bytes) {
  ++count;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++count;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

std::int64_t consist::testing::allocations() {
  return count;
}
