#include "tests/allocations.h"

#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

/// The allocations of one thread. Threads beyond the table share its last entry, which then has no thread's id.
struct Entry {
  std::atomic<pid_t> thread{0};
  std::atomic<std::int64_t> count{0};
};
constexpr int max_threads = 4096;
Entry table[max_threads];
std::atomic<int> used{0};
// Initial-exec: the first access must not itself allocate.
__attribute__((tls_model("initial-exec"))) thread_local Entry* own = nullptr;

/// Addresses of the tolerated library.
std::atomic<std::uintptr_t> library_begin{0}, library_end{0};
std::atomic<std::int64_t> tolerated_count{0}, tolerated_largest{0};

void count_one(std::size_t bytes, const void* caller) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address >= library_begin && address < library_end) {
    ++tolerated_count;
    const auto size = static_cast<std::int64_t>(bytes);
    for (std::int64_t largest = tolerated_largest; size > largest && !tolerated_largest.compare_exchange_weak(largest, size);) {
    }
    return;
  }
  if (own == nullptr) {
    const int index = used.fetch_add(1);
    own = &table[std::min(index, max_threads - 1)];
    own->thread = index < max_threads ? static_cast<pid_t>(syscall(SYS_gettid)) : 0;
  }
  own->count.fetch_add(1, std::memory_order_relaxed);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool knows_callers = false;
#else
constexpr bool knows_callers = true;
#endif

}  // namespace

namespace consist::test {

std::int64_t allocations() {
  return allocations_except({}) + tolerated_count;
}

std::int64_t allocations_except(const std::vector<pid_t>& threads) {
  std::int64_t sum = 0;
  const int entries = std::min(used.load(), max_threads);
  for (int i = 0; i < entries; ++i) {
    if (std::find(threads.begin(), threads.end(), table[i].thread.load()) == threads.end()) sum += table[i].count.load();
  }
  return sum;
}

std::string tolerate_allocations_of(const char* name) {
  if (!knows_callers) return {};
  struct Search {
    const char* name;
    std::string path;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* file = slash == nullptr ? info->dlpi_name : slash + 1;
        if (std::strncmp(file, wanted.name, std::strlen(wanted.name)) != 0) return 0;
        std::uintptr_t begin = UINTPTR_MAX, end = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          begin = std::min<std::uintptr_t>(begin, info->dlpi_addr + segment.p_vaddr);
          end = std::max<std::uintptr_t>(end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
        }
        library_begin = begin;
        library_end = end;
        wanted.path = info->dlpi_name;
        return 1;
      },
      &search);
  return search.path;
}

Tolerated tolerated_allocations() {
  return {tolerated_count, tolerated_largest};
}

void forget_largest_tolerated() {
  tolerated_largest = 0;
}

}  // namespace consist::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizer has an allocator of its own and tells of what it does.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                                         void (*freed)(const volatile void*));

namespace {

const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) { count_one(bytes, nullptr); }, [](const volatile void*) {});

}  // namespace
#else
// glibc lets a program define these in place of its own, which stay reachable by other names.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_one(count * bytes, __builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

// libstdc++'s would call malloc as well, but then it would be the caller.
void* operator new(std::size_t bytes) {
  count_one(bytes, __builtin_return_address(0));
  if (void* memory = __libc_malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
#endif
