// Measures the socket transport on this machine, beside what bounds it: copies in memory, and plain TCP with nothing on top.
//
//     bench_socket [RANKS] [CHUNK_BYTES [BUFFER_BYTES]]        starts RANKS (default 2) processes of itself on loopback
//
// busbw is that of nccl-tests: bytes of the data times 2 (n-1)/n for all_reduce and (n-1)/n for the halves of it, over the time.
// It is also the rate at which each rank sends, so plain TCP in both directions at once is its bound.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/collectives/ring.h"
#include "core/collectives/sum.h"
#include "core/job/environment.h"
#include "launch/start/launcher.h"
#include "plugins/transports/socket/connect.h"

namespace {

using namespace consist;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t largest = std::int64_t{64} << 20;
constexpr double seconds_per_size = 0.4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Bench {
 public:
  Bench(JoinedJob& job, std::size_t chunk_bytes, std::int64_t buffer_bytes) : job_(job) {
    GroupRequest group{"bench", {}, job.rank(), "cpu"};
    for (int rank = 0; rank < job.size(); ++rank) group.ranks.push_back(rank);
    auto links = connect_members(job, group, {"", buffer_bytes});
    links_ = links.get();
    ring_ = std::make_unique<RingCommunicator>(std::move(links), chunk_bytes);
    data_.resize(largest);
    other_.resize(largest * 2);
  }

  /// Seconds per call, the median over some repetitions whose number all ranks agree on.
  template <typename Call>
  double time(Call call) {
    double once = repeat(call, 3)[1];
    ring_->broadcast(&once, 2, DType::f32, 0, nullptr);
    const int repetitions = std::clamp(static_cast<int>(seconds_per_size / once), 5, 5000);
    std::vector<double> times = repeat(call, repetitions);
    return times[times.size() / 2];
  }

  void run() {
    const bool first = job_.rank() == 0;
    const int ranks = job_.size();
    if (first) std::printf("%d ranks, %s\n\n", ranks, ring_->verified_path().c_str());
    const double copy = time([&] { std::memcpy(other_.data(), data_.data(), largest); });
    const double added = time([&] { sum(data_.data(), data_.data(), other_.data(), largest / 4, DType::f32); });
    if (first) std::printf("%-34s %7.2f GB/s copied, all ranks at once\n", "memcpy of 64 MiB", largest / copy / 1e9);
    if (first) std::printf("%-34s %7.2f GB/s summed, all ranks at once\n", "sum of 64 MiB f32", largest / added / 1e9);
    const int next = (job_.rank() + 1) % ranks;
    const int previous = (job_.rank() + ranks - 1) % ranks;
    for (const std::int64_t bytes : {std::int64_t{128} << 10, largest}) {
      const double both = time([&] { exchange(next, previous, bytes); });
      if (first)
        std::printf("plain TCP, all ranks %8lld bytes     %7.2f GB/s sent by each\n", static_cast<long long>(bytes),
                    bytes / both / 1e9);
    }
    if (ranks == 2) {
      const double one_way = time([&] {
        if (job_.rank() == 0)
          links_->wait_sent(1, links_->post_send(1, data_.data(), largest));
        else
          links_->wait_received(0, links_->post_receive(0, data_.data(), largest));
      });
      if (first)
        std::printf("plain TCP, one way %10lld bytes     %7.2f GB/s\n", static_cast<long long>(largest), largest / one_way / 1e9);
    }
    if (first)
      std::printf("\n%10s | %21s | %21s | %12s | %12s\n", "bytes", "all_reduce f32", "all_reduce bf16", "r_scatter",
                  "all_gather");
    if (first)
      std::printf("%10s | %10s %10s | %10s %10s | %12s | %12s\n", "", "us", "GB/s bus", "us", "GB/s bus", "GB/s bus", "GB/s bus");
    for (std::int64_t bytes = 8; bytes <= largest; bytes *= 8) {
      std::fill(data_.begin(), data_.end(), std::byte{0});
      const double f32 = time([&] { ring_->all_reduce(data_.data(), bytes / 4, DType::f32, nullptr); });
      const double bf16 = time([&] { ring_->all_reduce(data_.data(), bytes / 2, DType::bf16, nullptr); });
      const std::int64_t part = std::max<std::int64_t>(bytes / 4 / ranks, 1);
      const double scatter = time([&] { ring_->reduce_scatter(data_.data(), other_.data(), part, DType::f32, nullptr); });
      const double gather = time([&] { ring_->all_gather(data_.data(), other_.data(), part, DType::f32, nullptr); });
      const double half = static_cast<double>(bytes) * (ranks - 1) / ranks / 1e9;
      if (first) {
        std::printf("%10lld | %10.1f %10.3f | %10.1f %10.3f | %12.3f | %12.3f\n", static_cast<long long>(bytes), f32 * 1e6,
                    2 * half / f32, bf16 * 1e6, 2 * half / bf16, half / scatter, half / gather);
      }
    }
  }

 private:
  template <typename Call>
  std::vector<double> repeat(Call call, int repetitions) {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      float token = 0;
      ring_->all_reduce(&token, 1, DType::f32, nullptr);
      const auto start = Clock::now();
      call();
      times.push_back(seconds_since(start));
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  void exchange(int next, int previous, std::int64_t bytes) {
    const auto received = links_->post_receive(previous, other_.data(), static_cast<std::size_t>(bytes));
    const auto sent = links_->post_send(next, data_.data(), static_cast<std::size_t>(bytes));
    links_->wait_received(previous, received);
    links_->wait_sent(next, sent);
  }

  JoinedJob& job_;
  PointToPoint* links_ = nullptr;
  std::unique_ptr<RingCommunicator> ring_;
  std::vector<std::byte> data_;
  std::vector<std::byte> other_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.empty() || words[0] != "as-rank") {
      std::vector<std::string> arguments{"as-rank"};
      if (words.size() > 1) arguments.insert(arguments.end(), words.begin() + 1, words.end());
      return launch::launch_local(words.empty() ? 2 : std::stoi(words[0]), arguments);
    }
    const auto job = join_job(job_address_from_environment(process_environment()));
    const std::size_t chunk = words.size() > 1 ? std::stoul(words[1]) : default_chunk_bytes;
    Bench(*job, chunk, words.size() > 2 ? std::stol(words[2]) : 0).run();
    job->leave(std::chrono::seconds(60));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_socket: %s\n", error.what());
    return 1;
  }
}
