// A step's program with whatever the bytes change in it (programs have a text for people, but no parser): the verifier refuses it
// with a ProgramError, or it can be printed, and its memory planned.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "consist/error.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/passes/tiny_case.h"

namespace {

using namespace consist;

/// Numbers from the input; zeros behind its end.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  bool at_end() const { return rest_.empty(); }
  template <typename Integer>
  Integer integer() {
    Integer value{};
    const std::size_t count = std::min(sizeof value, rest_.size());
    if (count > 0) std::memcpy(&value, rest_.data(), count);
    rest_ = rest_.subspan(count);
    return value;
  }
  /// Below `limit`, which must be positive.
  std::size_t below(std::size_t limit) { return integer<std::uint16_t>() % limit; }

 private:
  std::span<const std::uint8_t> rest_;
};

/// Mostly ids that exist, sometimes any number.
TensorId any_tensor(Source& source, const Program& p) {
  return source.below(8) == 0 ? source.integer<std::int32_t>() : static_cast<TensorId>(source.below(p.tensors.size()));
}

std::int64_t any_number(Source& source) {
  return source.below(4) == 0 ? source.integer<std::int64_t>() : source.integer<std::int8_t>();
}

Placement any_placement(Source& source) {
  switch (source.below(4)) {
    case 0:
      return Placement::replicate();
    case 1:
      return Placement::partial();
    case 2:
      return Placement::flat();
    default:
      return Placement::shard(static_cast<int>(source.below(128)));
  }
}

void change_tensor(Source& source, Program& p) {
  Tensor& t = p.tensors[source.below(p.tensors.size())];
  switch (source.below(9)) {
    case 0:
      t.storage = any_tensor(source, p);
      break;
    case 1:
      t.offset = any_number(source);
      break;
    case 2:
      t.row_stride = any_number(source);
      break;
    case 3:
      t.dtype = static_cast<DType>(source.below(6));
      break;
    case 4:
      if (t.shape.rank() > 0)
        t.shape[static_cast<int>(source.below(static_cast<std::size_t>(t.shape.rank())))] = any_number(source);
      break;
    case 5:
      t.placements[static_cast<int>(source.below(Mesh::max_axes))] = any_placement(source);
      break;
    case 6:
      t.role = static_cast<Role>(source.below(7));
      break;
    case 7:
      t.space = static_cast<MemorySpace>(source.below(2));
      break;
    default:
      t.state = !t.state;
  }
}

void change_instruction(Source& source, Program& p) {
  if (p.instructions.empty()) return;
  const std::size_t at = source.below(p.instructions.size());
  Instruction& i = p.instructions[at];
  const std::size_t other = source.below(p.instructions.size());
  std::vector<TensorId>& list = source.below(2) == 0 ? i.inputs : i.outputs;
  switch (source.below(11)) {
    case 0:
      if (!list.empty()) list[source.below(list.size())] = any_tensor(source, p);
      break;
    case 1:
      list.push_back(any_tensor(source, p));
      break;
    case 2:
      if (!list.empty()) list.pop_back();
      break;
    case 3:
      i.op = source.below(8) == 0 ? nullptr : p.instructions[other].op;
      break;
    case 4:
      std::swap(i, p.instructions[other]);
      break;
    case 5:
      p.instructions.erase(p.instructions.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 6:
      p.instructions.insert(p.instructions.begin() + static_cast<std::ptrdiff_t>(other), Instruction(i));
      break;
    case 7:
      i.waits.push_back(source.integer<std::int32_t>());
      break;
    case 8: {
      // Each field may get any value, also one that no queue may have.
      const auto kind = source.integer<std::int8_t>(), lane = source.integer<std::int8_t>(), axes = source.integer<std::int8_t>();
      const std::uint64_t fields[] = {static_cast<std::uint64_t>(kind & 7) | static_cast<std::uint64_t>(lane & 7) << 8U,
                                      static_cast<std::uint64_t>(axes & 31)};
      static_assert(sizeof(Queue) == sizeof fields);
      std::memcpy(static_cast<void*>(&i.queue), fields, sizeof fields);
      break;
    }
    case 9:
      if (!i.attributes.all().empty()) {
        const std::string name = i.attributes.all()[source.below(i.attributes.all().size())].first;
        if (source.below(8) == 0) {
          i.attributes.set(name, std::string("f32"));
        } else if (source.below(2) == 0) {
          i.attributes.set(name, static_cast<double>(any_number(source)));
        } else {
          i.attributes.set(name, any_number(source));
        }
      }
      break;
    default:
      i.attributes = p.instructions[other].attributes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Program steps[] = {test::Case(1).step(), test::Case(2, 2).step()};
  Source source(data, size);
  Program program = steps[source.below(std::size(steps))];
  for (int changes = 0; changes < 64 && !source.at_end(); ++changes) {
    if (source.below(2) == 0) {
      change_tensor(source, program);
    } else {
      change_instruction(source, program);
    }
  }
  try {
    verify(program);
  } catch (const ProgramError&) {
    return 0;
  }
  if (to_text(program).empty()) std::abort();
  try {
    plan_memory(program, {});
  } catch (const ProgramError&) {
  }
  return 0;
}
