// Transports: how the bytes of a collective move within a group of ranks, and the proof of which path they took.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "consist/dtype.h"
#include "consist/export.h"
#include "consist/job.h"
#include "consist/kernel.h"

namespace consist {

/// A group of ranks with a transport between them. Counts are in elements. On host memory calls return when done; on a device
/// they are enqueued on `queue`. REQUIRES: all members start collectives in the same order. THREADS: one at a time. ERRORS:
/// PeerError naming the rank; every wait ends after Job::timeout().
class CONSIST_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const noexcept = 0;  ///< of this process within the group
  virtual int size() const noexcept = 0;

  /// Sum over the group, in place; the result is bitwise equal on all members. f32 and bf16 (bf16 is summed in f32 per hop).
  virtual void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) = 0;
  /// `input` holds size() slices of `count` elements; member r receives the sum of the r-th slices. `output` may be the r-th
  /// slice of `input`.
  virtual void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) = 0;
  /// Member r contributes `count` elements, which become slice r of every `output`. `input` may be slice r of `output`.
  virtual void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) = 0;
  /// Slice r of `input` goes to member r, the slice from member r becomes slice r of `output`. Slices have `count` elements; from
  /// the start of one to the start of the next it is `input_stride` and `output_stride` elements, at least `count`. `input` and
  /// `output` do not overlap.
  virtual void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride,
                          std::int64_t count, DType dtype, NativeQueue queue) = 0;
  virtual void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) = 0;
  virtual void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) = 0;
  virtual void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) = 0;

  /// Calls between the two may be sent as one message; rely on their results only after group_end(). A group may hold sends with
  /// receives, of which none waits for another: members that all send first do not block each other. REQUIRES: one queue
  /// throughout, no nesting, and the same groups on all members. The default does nothing: a transport of its own with messages
  /// overrides it.
  virtual void group_begin(NativeQueue queue);
  virtual void group_end(NativeQueue queue);

  /// Throws the failure (PeerError) of a collective that was enqueued earlier; does nothing if calls return when done.
  virtual void check();
  /// The path that was proven to carry the bytes: "tcp 127.0.0.1", "P2P/CUMEM", "NET/Socket on eth0".
  virtual std::string verified_path() const = 0;
  /// Bytes that this member has sent since it was made (0 where the library below does not tell).
  virtual std::int64_t bytes_sent() const noexcept = 0;
  /// Versions of the libraries that carry the bytes, by name: "nccl". The default has none.
  virtual std::map<std::string, std::string> versions() const;
};

/// A group to be connected, as one of its members sees it.
struct GroupRequest {
  std::string name;         ///< unique within the job and equal on all members: "data.0"
  std::vector<int> ranks;   ///< ranks of the job, in group order
  int index = 0;            ///< position of this process in `ranks`
  std::string device_kind;  ///< "cpu" (host memory) or "cuda"
  bool link = false;  ///< a group of two, of which the first only sends and the second only receives: no collectives
};

/// The plugin kind "transport".
class CONSIST_API Transport {
 public:
  virtual ~Transport();
  /// The reason why this transport cannot serve a device of that kind on this machine; empty if it can. Must not start anything.
  virtual std::string unavailable(std::string_view device_kind) const = 0;
  /// The reason why it cannot connect a group of devices of that kind whose members are on one host, or on several; empty, the
  /// default, if it can. Predictions ask it on any machine, by the options alone; connect() refuses such groups by itself.
  virtual std::string cannot_connect(std::string_view device_kind, bool several_hosts) const;
  /// Priority among the transports that `--transport auto` chooses from, for groups of devices of that kind whose members are on
  /// one host, or on several: of those that can connect such a group and are there, the one with the highest number above 0 is
  /// taken, the first by name where two are equal. 0, the default: taken only where --transport names it. In the tree: socket 10,
  /// across hosts ib 15 and efa 20, within one shm 20 and nvlink 30. Asked on any machine, by the options alone.
  virtual int preference(std::string_view device_kind, bool several_hosts) const;
  /// Connects the members of a group; called by all of them. The job outlives the communicator.
  virtual std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) = 0;
};

}  // namespace consist
