// Collectives of NCCL behind Consist's interface, with a thread that watches over them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "consist/transport.h"
#include "plugins/transports/nccl/driver.h"
#include "plugins/transports/nccl/handle.h"
#include "plugins/transports/nccl/path_verification.h"
#include "plugins/transports/nccl/peer_copies.h"
#include "plugins/transports/nccl/stall_detector.h"

namespace consist::nccl {

/// Calls enqueue and return; what goes wrong afterwards (a peer that died or is stuck for longer than the job's timeout, an error
/// of NCCL, a connection that takes another path than the verified one) is noticed by the watchdog, which aborts the work on the
/// device, so that nobody waits for it for ever; check() and every later call throw it.
class NcclCommunicator final : public Communicator {
 public:
  /// All members at once, each with the CUDA context of its device current; `id` is theirs alone. `network`: see Handle.
  NcclCommunicator(Job& job, GroupRequest group, const Library& library, const Driver& driver, const ncclUniqueId& id,
                   const std::string& network);
  ~NcclCommunicator() override;

  int rank() const noexcept override { return group_.index; }
  int size() const noexcept override { return static_cast<int>(group_.ranks.size()); }
  void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) override;
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override;
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override;
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType dtype, NativeQueue queue) override;
  void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) override;
  void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) override;
  void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) override;
  void group_begin(NativeQueue queue) override;
  void group_end(NativeQueue queue) override;
  void check() override;
  std::string verified_path() const override { return path_; }
  /// 0: NCCL does not tell, and collectives of a replayed graph pass by unseen.
  std::int64_t bytes_sent() const noexcept override { return 0; }
  std::map<std::string, std::string> versions() const override { return {{"nccl", library_.version_text()}}; }

  /// To the next member and from the previous one at the same time, as one call of NCCL; for the warm-up.
  void exchange(const void* out, void* in, std::int64_t bytes, NativeQueue queue);
  /// From now on all_gather, reduce_scatter, all_to_all, send and receive of some size go by copy engines. Called by all members,
  /// before set_verified(). Throws SystemError where GPUs or processes cannot reach each other's memory.
  void use_copy_engines(std::size_t staging, std::size_t least_part);
  /// Ends the set-up: `path` is what was verified. From now on the log is watched from `log_begin` on for connections of device
  /// `device` that break the promise.
  void set_verified(std::string path, const Promise& promise, int device, std::size_t log_begin);

 private:
  /// Messages below go by NCCL: waiting for the other member costs more than its kernel does.
  static constexpr std::size_t least_message = std::size_t{256} << 10;

  struct WatchedLog {
    Promise promise;
    int device;
    std::size_t begin;
  };
  template <typename Call>
  void enqueue(const char* what, NativeQueue queue, Call call);
  /// The same by copy engines; outside of a group only.
  template <typename Call>
  void enqueue_copies(NativeQueue queue, Call call);
  /// A message; what a member gives to an all_gather, gets from a reduce_scatter or gives to each member in an all_to_all.
  bool copies_message(std::size_t bytes) const { return copies_ && bytes >= least_message; }
  bool copies_part(std::size_t bytes) const { return copies_ && bytes >= least_part_; }
  void nccl_gather(const Parts& parts, NativeQueue queue);
  void nccl_scatter(const Parts& parts, NativeQueue queue);
  void nccl_exchange(const Parts& parts, NativeQueue queue);
  /// Throws what a call's result means unless it is ncclSuccess.
  void check_result(const char* what, ncclResult_t result);
  void watch();
  void look_for_trouble();
  void look_at_log();
  void look_for_stall();
  void end_waits(std::exception_ptr failure);
  [[noreturn]] void rethrow();

  Job& job_;
  const GroupRequest group_;
  const Library& library_;
  const Driver& driver_;
  CUcontext context_ = nullptr;
  std::optional<Handle> handle_;
  std::optional<StallDetector> stall_;
  std::unique_ptr<PeerCopies> copies_;
  std::size_t least_part_ = 0;  // bytes of a part that copies_ moves
  std::string path_;
  // Used by the thread that enqueues.
  bool in_group_ = false;
  std::vector<Parts> gathered_, scattered_, exchanged_;  // in the group, if there are copy engines for them

  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::optional<WatchedLog> log_;
  // The watchdog's own.
  std::uint64_t last_progress_ = 0;
  std::chrono::steady_clock::time_point progress_at_;
  std::thread watchdog_;  // last: it uses the others
};

}  // namespace consist::nccl
