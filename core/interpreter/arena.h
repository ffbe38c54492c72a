// The memory of one rank at its planned addresses: a cell for each smallest element of the program, which holds an exact number
// in fp64 whatever dtype lies there, and knows who wrote it and as part of which storage.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/interpreter/planned.h"
#include "core/reference/ops.h"

namespace consist::interpreter {

/// Dtypes decide where elements lie and not how they are rounded, unless round_to_dtypes() was called: all numbers are fp64. A
/// read of a cell that was last written as part of another storage, of an element that was half overwritten, or of one that
/// nobody wrote throws ProgramError naming the reader and the writer.
class Arena {
 public:
  /// Memory that the programs share, as a step and its evaluation do; the first one runs. They must outlive it.
  explicit Arena(std::vector<const Planned*> programs);

  /// Goes on with program `index`: where both have a state of one name, what lies there now counts as that of the new one.
  void go_on_with(std::size_t index);

  /// From here on what is written to f32 and bf16 is rounded as they are.
  void round_to_dtypes() noexcept { rounds_ = true; }
  bool rounds() const noexcept { return rounds_; }

  /// Whose work the next accesses are; -1: the trainer's.
  void set_instruction(InstructionId instruction) noexcept { instruction_ = instruction; }

  /// Returns the rank's part of `tensor`, dense.
  reference::Value read(TensorId tensor) const;
  /// Elements [first, first + values.size()) of it, in local order.
  void write(TensorId tensor, const reference::Value& value);
  void write_elements(TensorId tensor, std::int64_t first, const std::vector<double>& values);

  /// For collectives, which move contiguous memory: elements of `tensor`'s dtype from its first one on, beyond its end too. Those
  /// from `padding` on (counted from `first`) may be NaN, which nothing has written; else that is an error.
  std::vector<double> read_at(TensorId tensor, std::int64_t first, std::int64_t count, std::int64_t padding) const;
  void write_at(TensorId tensor, std::int64_t first, std::span<const double> values);

  /// Scratch of the instruction: what lay there is gone.
  void scribble(std::int64_t begin, std::int64_t bytes);

  const Planned& planned() const noexcept { return *programs_[current_]; }

 private:
  /// Who wrote a cell: a program, one of its storages (none: scratch) and an instruction (none: the trainer), packed so that many
  /// are compared quickly. 0: nobody.
  class Tag {
   public:
    Tag() = default;
    Tag(std::size_t program, TensorId storage, InstructionId writer)
        : bits_((program + 1) << 60 | static_cast<std::uint64_t>(storage + 1) << 30 | static_cast<std::uint64_t>(writer + 1)) {}
    bool has_owner() const { return bits_ != 0; }
    bool same_owner(Tag other) const { return difference(other) >> 30 == 0; }
    std::uint64_t difference(Tag other) const { return bits_ ^ other.bits_; }  ///< a bit for each that differs
    bool operator==(const Tag&) const = default;
    std::size_t program() const { return (bits_ >> 60) - 1; }
    TensorId storage() const { return static_cast<TensorId>(bits_ >> 30 & low) - 1; }
    InstructionId writer() const { return static_cast<InstructionId>(bits_ & low) - 1; }

   private:
    static constexpr std::uint64_t low = (std::uint64_t{1} << 30) - 1;
    std::uint64_t bits_ = 0;
  };
  struct Space {
    std::vector<double> values;  ///< of an element in its first cell
    std::vector<Tag> tags;
  };
  struct Place {
    std::size_t space;
    std::int64_t begin;  ///< cell of the first element
    std::int64_t step;   ///< cells per element
    Tag tag;             ///< of what is written there now
    DType dtype;
  };
  Place place_of_tensor(TensorId tensor) const;
  /// Elements [0, count) from cell `at` on, one behind the other.
  void read_run(const Place& place, std::int64_t at, std::int64_t count, TensorId tensor, double* to) const;
  void write_run(const Place& place, std::int64_t at, std::int64_t count, const double* from);
  /// True if all of the elements' cells were last written as the tensor's, each element at once.
  template <std::int64_t step>
  static bool are_whole(const double* values, const Tag* tags, std::int64_t count, Tag owner);
  void require_inside(const Place& place, std::int64_t at, std::int64_t cells) const;
  [[noreturn]] void refuse(TensorId tensor, Tag tag, std::int64_t at) const;

  std::vector<const Planned*> programs_;
  std::size_t current_ = 0;
  std::int64_t unit_ = 4;  ///< bytes of a cell
  std::array<Space, memory_spaces> spaces_;
  InstructionId instruction_ = -1;
  bool rounds_ = false;
};

}  // namespace consist::interpreter
