// Large amounts of values on their way into a device: made on many threads, copied there while the next ones are made.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"

namespace consist {

/// Used from the device's thread, which does the copying and works along. Holds 48 MiB of the device's host memory (which a GPU
/// reads at the full speed of its bus) however much is written.
class CONSIST_API StagedUpload {
 public:
  /// An array in the device's memory that is written.
  struct Target {
    void* address = nullptr;
    std::int64_t element_bytes = 0;
  };
  /// Puts elements [first, first + count) where `out` says, one place per target. Called from several threads at once, with at
  /// most most_elements.
  using Make = std::function<void(std::int64_t first, std::int64_t count, std::span<char* const> out)>;

  static constexpr std::int64_t most_elements = std::int64_t{1}
                                                << 15;  ///< a quarter of a megabyte or less: stays in a core's cache
  static constexpr std::size_t most_targets = 2;

  /// `threads` >= 1 make values, the calling one among them. `device` must outlive this.
  StagedUpload(Device& device, int threads);
  /// Gives up what finish() has not waited for.
  ~StagedUpload();
  StagedUpload(const StagedUpload&) = delete;
  StagedUpload& operator=(const StagedUpload&) = delete;

  /// Writes `elements` elements of all targets, of which there are at most most_targets. They are there once finish() has
  /// returned; until then `make` may be called. Throws what `make` threw, here or in an earlier write().
  void write(std::span<const Target> targets, std::int64_t elements, Make make);
  void finish();

 private:
  /// Values that are made and uploaded together; the pieces that threads take have at most most_elements.
  struct Block {
    char* memory = nullptr;
    std::array<Target, most_targets> targets{};  // where the block's own part begins
    std::array<char*, most_targets> staged{};
    std::size_t target_count = 0;
    std::int64_t first = 0, count = 0, pieces = 0;
    std::shared_ptr<const Make> make;
    std::atomic<std::int64_t> untaken{0};  // pieces; below 0 where threads have looked in vain
    std::atomic<std::int64_t> unmade{0};
  };
  /// A ring: one is uploaded, one is made, and one is there for threads that have nothing left to take.
  static constexpr std::int64_t ring = 3;

  Block& block(std::int64_t number) noexcept { return blocks_[static_cast<std::size_t>(number % ring)]; }
  void begin_next_block(std::span<const Target> targets, std::int64_t first, std::int64_t count,
                        const std::shared_ptr<const Make>& make);
  void upload_oldest();
  bool make_piece();
  void make_piece_of(Block& block, std::int64_t piece);
  void start_workers();
  void work();

  Device& device_;
  int threads_;
  void* memory_;
  std::array<Block, ring> blocks_;
  std::int64_t begun_ = 0;  // blocks, as are those that have been uploaded
  std::atomic<std::int64_t> uploaded_{0};
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable work_there_, block_made_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // the first one, under mutex_
};

}  // namespace consist
