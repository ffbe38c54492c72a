// The collectives that a transport is measured with: what each reads and writes, and what must come out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consist/dtype.h"
#include "consist/kernel.h"
#include "consist/transport.h"

namespace consist::launch {

/// Data of a measured collective repeats after so many elements.
inline constexpr std::int64_t collective_period = 13;
/// Element i of the data with which `member` begins. A small whole number, so that sums over many members are exact in every
/// dtype.
std::int64_t collective_value(int member, std::int64_t i);

/// One of them. Sizes are elements; `total` is the whole data as nccl-tests counts it, a multiple of the number of members.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual const char* name() const = 0;
  virtual const char* operation() const { return "none"; }  ///< of the reduction
  virtual int root() const { return -1; }
  /// Bytes that a link carries per byte of data: busbw / algbw.
  virtual double bus_factor(int members) const { return 1.0 * (members - 1) / members; }
  /// Elements that a rank reads, and that it writes; a collective in place writes its input.
  virtual std::int64_t input(std::int64_t total, int members) const = 0;
  virtual std::int64_t output(std::int64_t total, int members) const = 0;
  virtual bool in_place() const { return false; }
  /// As nccl-tests prints it.
  virtual std::int64_t count(std::int64_t total, int members) const { return total / members; }
  /// Enqueues it. Throws what the transport throws.
  virtual void call(Communicator& group, void* input, void* output, std::int64_t total, DType dtype, NativeQueue queue) const = 0;
  /// True if `member` has a result to check; expected() gives its element i.
  virtual bool has_result(int /*member*/, int /*members*/) const { return true; }
  virtual std::int64_t expected(int member, int members, std::int64_t total, std::int64_t i) const = 0;
  /// The result consists of pieces of that many elements, in each of which it repeats after collective_period elements; 0: one
  /// piece.
  virtual std::int64_t piece(std::int64_t /*total*/, int /*members*/) const { return 0; }
};

/// One object each, in the order of their names' list. They live as long as the process.
const std::vector<std::unique_ptr<Collective>>& collectives();
/// Throws UsageError if there is none.
const Collective& collective_named(const std::string& name);

}  // namespace consist::launch
