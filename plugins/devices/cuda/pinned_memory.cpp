#include "plugins/devices/cuda/pinned_memory.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "consist/error.h"

namespace consist::cuda {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
/// Bytes that a thread takes at a time.
constexpr std::size_t piece = std::size_t{64} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + huge_page - 1) / huge_page * huge_page;
}

/// Has the system give [memory, memory + bytes) its pages. False, with errno, if it has none.
bool populate(char* memory, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // a system before Linux 5.14 does not know the word
#endif
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) static_cast<volatile char*>(memory)[at] = 0;
  return true;
}

/// The error of the first piece that got no pages; 0 if all did.
int populate_by_threads(char* memory, std::size_t bytes, int threads) {
  std::atomic<std::size_t> next{0};
  std::atomic<int> error{0};
  const auto work = [&] {
    for (std::size_t at = next.fetch_add(piece); at < bytes && error == 0; at = next.fetch_add(piece)) {
      if (!populate(memory + at, std::min(piece, bytes - at))) error = errno;
    }
  };
  const auto useful = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), (bytes + piece - 1) / piece);
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < useful; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return error;
}

}  // namespace

void* allocate_pinned(std::size_t bytes, int threads) {
  const std::size_t size = whole_pages(bytes);
  const std::string asked = "pinned host memory of " + std::to_string(size) + " bytes";
  // One huge page more, so that a boundary of huge pages lies within.
  void* const mapped = mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw SystemError(asked + ": " + std::strerror(errno));
  char* const begin = static_cast<char*>(mapped);
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  char* const memory = begin + before;
  if (before > 0) munmap(begin, before);
  if (before < huge_page) munmap(memory + size, huge_page - before);

  madvise(memory, size, MADV_HUGEPAGE);  // a wish: small pages do as well
  if (const int error = populate_by_threads(memory, size, threads); error != 0) {
    munmap(memory, size);
    throw SystemError(asked + ": " + std::strerror(error));
  }
  if (const cudaError_t status = cudaHostRegister(memory, size, cudaHostRegisterDefault); status != cudaSuccess) {
    cudaGetLastError();
    munmap(memory, size);
    throw SystemError(asked + ": " + cudaGetErrorString(status));
  }
  return memory;
}

void release_pinned(void* memory, std::size_t bytes) noexcept {
  cudaHostUnregister(memory);
  munmap(memory, whole_pages(bytes));
}

}  // namespace consist::cuda
