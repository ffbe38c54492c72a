// Waits between members when copy engines move the bytes, without a GPU: members are threads, their streams run what is enqueued
// at once, and memory is the host's. The same with GPUs: nccl_gpu_test.
#include "plugins/transports/nccl/peer_copies.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "plugins/transports/nccl/part_kernels.h"
#include "tests/job/in_process.h"

namespace consist::nccl {

// In place of the kernels.
void load_part_kernels() {}
void place_parts(const HeldParts& parts, void* out, std::size_t distance, std::size_t bytes, CUstream /*stream*/) {
  for (int p = 0; p < parts.count; ++p)
    std::memmove(static_cast<char*>(out) + static_cast<std::size_t>(p) * distance, parts.part[p], bytes);
}
void sum_parts(const HeldParts& parts, void* out, std::int64_t elements, DType dtype, CUstream /*stream*/) {
  if (dtype != DType::f32) throw ProgramError("these tests sum f32");
  for (std::int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int p = 0; p < parts.count; ++p) sum += static_cast<const float*>(parts.part[p])[i];
    static_cast<float*>(out)[i] = sum;
  }
}

namespace {

using namespace std::chrono_literals;

template <typename T>
T* pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

CUresult run_words(CUstream /*stream*/, unsigned count, CUstreamBatchMemOpParams* ops, unsigned /*flags*/) {
  for (unsigned i = 0; i < count; ++i) {
    if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
      std::atomic_ref(*pointer<std::uint32_t>(ops[i].writeValue.address)).store(ops[i].writeValue.value);
      continue;
    }
    const std::atomic_ref word(*pointer<std::uint32_t>(ops[i].waitValue.address));
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (static_cast<std::int32_t>(word.load() - ops[i].waitValue.value) < 0) {
      if (std::chrono::steady_clock::now() > deadline) return CUDA_ERROR_LAUNCH_TIMEOUT;
      std::this_thread::yield();
    }
  }
  return CUDA_SUCCESS;
}

/// Delays of all sizes, so that members meet in every order.
CUresult run_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream /*stream*/) {
  thread_local std::minstd_rand random(static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  std::memmove(pointer<char>(to), pointer<char>(from), bytes);
  return CUDA_SUCCESS;
}

Driver host_driver() {
  Driver d{};
  d.error_name = [](CUresult, const char** name) {
    *name = "a wait that took too long";
    return CUDA_SUCCESS;
  };
  d.current_context = [](CUcontext* context) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  d.allocate = [](CUdeviceptr* memory, std::size_t bytes) {
    *memory = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return CUDA_SUCCESS;
  };
  d.release = [](CUdeviceptr memory) {
    std::free(pointer<void>(memory));
    return CUDA_SUCCESS;
  };
  d.export_memory = [](CUipcMemHandle*, CUdeviceptr) { return CUDA_SUCCESS; };
  d.enable_peer_access = [](CUcontext, unsigned) { return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED; };
  d.create_stream = [](CUstream* stream, unsigned) {
    *stream = nullptr;
    return CUDA_SUCCESS;
  };
  d.destroy_stream = [](CUstream) { return CUDA_SUCCESS; };
  d.query_stream = [](CUstream) { return CUDA_SUCCESS; };
  d.fill = [](CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream) {
    std::memset(pointer<char>(to), value, bytes);
    return CUDA_SUCCESS;
  };
  d.copy = run_copy;
  d.batch_writes = run_words;
  return d;
}

constexpr std::size_t staging = 1000;  // bytes: made a multiple of 256 less than that

struct Member {
  PeerCopies& copies;
  int rank, size;
};

void run(int members, bool link, const std::function<void(Member&)>& body) {
  const Driver driver = host_driver();
  const auto errors = testing::run_ranks(testing::make_addresses(members, 30s), [&](JoinedJob& job) {
    GroupRequest group{"data.0", {}, job.rank(), "cuda", link};
    for (int rank = 0; rank < members; ++rank) group.ranks.push_back(rank);
    PeerCopies copies(driver, job, group, staging);
    Member member{copies, job.rank(), members};
    body(member);
    job.leave(30s);
  });
  for (const auto& error : errors) EXPECT_EQ(testing::text_of(error), "");
}

float value(int member, std::int64_t i, int round) {
  return static_cast<float>((i * 7 + member * 1000 + round) % 4096);
}

/// Tensors of several rounds, less than one, none, and exactly one.
const std::vector<std::int64_t> counts{700, 7, 0, 1, 192, 193};

void gather_and_scatter(Member& m, int round) {
  const auto size = static_cast<std::size_t>(m.size);
  std::vector<std::vector<float>> own, whole;
  std::vector<Parts> gathers, scatters;
  for (const std::int64_t count : counts) {
    const auto n = static_cast<std::size_t>(count);
    own.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) own.back()[i] = value(m.rank, static_cast<std::int64_t>(i), round);
    whole.emplace_back(n * size, -1.0F);
  }
  for (std::size_t t = 0; t < counts.size(); ++t) {
    gathers.push_back({own[t].data(), whole[t].data(), counts[t], DType::f32});
    scatters.push_back({whole[t].data(), own[t].data(), counts[t], DType::f32});
  }
  m.copies.gather(gathers, nullptr);
  for (std::size_t t = 0; t < counts.size(); ++t) {
    for (std::int64_t i = 0; i < counts[t] * m.size; ++i)
      ASSERT_EQ(whole[t][static_cast<std::size_t>(i)], value(static_cast<int>(i / counts[t]), i % counts[t], round));
  }
  // Every member's own numbers to each part.
  for (std::vector<float>& all : whole) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(m.rank, static_cast<std::int64_t>(i), round + 1);
  }
  m.copies.scatter(scatters, nullptr);
  for (std::size_t t = 0; t < counts.size(); ++t) {
    for (std::int64_t i = 0; i < counts[t]; ++i) {
      float sum = 0;
      for (int member = 0; member < m.size; ++member) sum += value(member, m.rank * counts[t] + i, round + 1);
      ASSERT_EQ(own[t][static_cast<std::size_t>(i)], sum);
    }
  }
}

TEST(PeerCopies, AMemberThatCannotOpenOthersMemoryIsAnErrorOnAll) {
  static std::atomic<int> asked;
  asked = 0;
  Driver driver = host_driver();
  driver.enable_peer_access = [](CUcontext, unsigned) {
    return ++asked == 4 ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  };
  const auto errors = testing::run_ranks(testing::make_addresses(3, 30s), [&](JoinedJob& job) {
    EXPECT_THROW(PeerCopies(driver, job, {"data.0", {0, 1, 2}, job.rank(), "cuda", false}, staging), SystemError);
    job.leave(30s);
  });
  for (const auto& error : errors) EXPECT_EQ(testing::text_of(error), "");
}

TEST(PeerCopies, GatherAndScatterInRounds) {
  for (const int members : {2, 3, 4, 7}) {
    run(members, false, [](Member& m) {
      for (int round = 0; round < 20; ++round) gather_and_scatter(m, round);
    });
  }
}

TEST(PeerCopies, ThePartMayLieInTheWhole) {
  run(3, false, [](Member& m) {
    std::vector<float> whole(3 * 500);
    float* const mine = whole.data() + static_cast<std::ptrdiff_t>(m.rank) * 500;
    std::iota(mine, mine + 500, static_cast<float>(m.rank * 500));
    const Parts gather{mine, whole.data(), 500, DType::f32}, scatter{whole.data(), mine, 500, DType::f32};
    m.copies.gather({&gather, 1}, nullptr);
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], static_cast<float>(i));
    m.copies.scatter({&scatter, 1}, nullptr);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(mine[i], 3 * static_cast<float>(m.rank * 500 + i));
  });
}

TEST(PeerCopies, MessagesFollowEachOther) {
  for (const bool link : {true, false}) {
    run(2, link, [](Member& m) {
      for (int round = 0; round < 50; ++round) {
        std::vector<float> data(static_cast<std::size_t>(1 + round * 37));
        if (m.rank == 0) {
          for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(0, static_cast<std::int64_t>(i), round);
          m.copies.send(data.data(), data.size() * sizeof(float), 1, nullptr);
        } else {
          m.copies.receive(data.data(), data.size() * sizeof(float), 0, nullptr);
          for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], value(0, static_cast<std::int64_t>(i), round));
        }
      }
    });
  }
}

TEST(PeerCopies, ReleasedMembersGoOnWithoutTheOthers) {
  std::atomic<bool> done{false};
  run(2, false, [&](Member& m) {
    if (m.rank == 1) return;
    std::thread watchdog([&] {
      while (!done.load()) {
        m.copies.release();
        std::this_thread::sleep_for(1ms);
      }
    });
    std::vector<float> own(900), whole(1800);
    const Parts parts{own.data(), whole.data(), 900, DType::f32};
    for (int i = 0; i < 3; ++i) m.copies.gather({&parts, 1}, nullptr);
    done = true;
    watchdog.join();
  });
  EXPECT_TRUE(done.load());
}

}  // namespace
}  // namespace consist::nccl
