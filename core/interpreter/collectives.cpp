#include "core/interpreter/collectives.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/op.h"

namespace consist::interpreter {
namespace {

[[noreturn]] void refuse(const Member& a, const Member& b, const std::string& why) {
  throw ProgramError("members of one collective make calls that do not fit each other (" + why + "):\n" + a.text() + "\n" +
                     b.text());
}

void begin(std::span<const Member> members) {
  for (const Member& m : members) {
    m.arena->set_instruction(m.instruction);
    const Instruction &mine = m.get(), &first = members[0].get();
    if (mine.op != first.op) refuse(members[0], m, "ops");
    if (mine.attributes.key() != first.attributes.key()) refuse(members[0], m, "attributes");
    if (mine.inputs.size() != first.inputs.size()) refuse(members[0], m, "numbers of tensors");
  }
}

std::int64_t bytes_of(const Planned& planned, TensorId id) {
  return planned.program.part(id).shape.elements() * static_cast<std::int64_t>(size_of(planned.program[id].dtype));
}

/// A tensor within a message, and the gap behind it.
struct Piece {
  TensorId tensor;
  std::int64_t first, elements, until;  ///< in elements of the message: its own, and where the next one begins
};

/// Tensors that an all_reduce sums at a time: those that lie one behind the other but for alignment go as one, gaps included.
using Message = std::vector<Piece>;

std::vector<Message> messages_of(const Member& member) {
  const Planned& planned = member.arena->planned();
  const std::vector<TensorId>& tensors = member.get().inputs;
  std::vector<Message> messages;
  std::int64_t begin = 0, end = 0;  // of the message so far, in bytes
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DType dtype = planned.program[tensors[i]].dtype;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t address = planned.plan.address[static_cast<std::size_t>(tensors[i])],
                       bytes = bytes_of(planned, tensors[i]);
    const std::int64_t gap = address - end;
    if (i == 0 || planned.program[tensors[i - 1]].dtype != dtype || gap < 0 || gap >= tensor_alignment) {
      messages.emplace_back();
      begin = address;
    } else {
      messages.back().back().until = (address - begin) / size;
    }
    end = address + bytes;
    messages.back().push_back({tensors[i], (address - begin) / size, bytes / size, (end - begin) / size});
  }
  return messages;
}

bool lie_alike(const Message& a, const Message& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Piece& x, const Piece& y) {
    return x.first == y.first && x.elements == y.elements && x.until == y.until;
  });
}

void add(std::vector<double>& sum, const std::vector<double>& summand) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += summand[i];
}

void all_reduce(std::span<const Member> members) {
  std::vector<std::vector<Message>> messages;
  for (const Member& m : members) messages.push_back(messages_of(m));
  for (std::size_t m = 1; m < members.size(); ++m) {
    if (!std::equal(messages[m].begin(), messages[m].end(), messages[0].begin(), messages[0].end(), lie_alike))
      refuse(members[0], members[m], "messages, by what lies side by side in memory");
  }
  for (std::size_t k = 0; k < messages[0].size(); ++k) {
    for (std::size_t p = 0; p < messages[0][k].size(); ++p) {
      const Piece& piece = messages[0][k][p];
      const std::int64_t count = piece.until - piece.first;
      std::vector<double> sum(static_cast<std::size_t>(count));
      for (std::size_t m = 0; m < members.size(); ++m)
        add(sum, members[m].arena->read_at(messages[m][k][p].tensor, 0, count, piece.elements));
      for (std::size_t m = 0; m < members.size(); ++m) members[m].arena->write_at(messages[m][k][p].tensor, 0, sum);
    }
  }
}

/// Where the parts of a tensor lie in the whole one: a message per index of the dimensions before the one that is divided.
struct PartsRun {
  std::int64_t whole, part, count;  ///< elements
};
std::vector<PartsRun> parts_of(const Shape& whole, std::int64_t dim, std::int64_t ranks) {
  if (dim < 0) return {{0, 0, (whole.elements() + ranks - 1) / ranks}};
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < dim; ++i) outer *= whole[i];
  for (int i = static_cast<int>(dim); i < whole.rank(); ++i) inner *= whole[i];
  std::vector<PartsRun> runs;
  for (std::int64_t o = 0; o < outer; ++o) runs.push_back({o * inner, o * inner / ranks, inner / ranks});
  return runs;
}

/// all_gather (`gathers`) and reduce_scatter.
void move_parts(std::span<const Member> members, bool gathers) {
  const auto ranks = static_cast<std::int64_t>(members.size());
  const std::size_t tensors = members[0].get().inputs.size();
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto shape = [&](const Member& m, bool whole) {
      const TensorId id = whole == gathers ? m.get().outputs.at(t) : m.get().inputs.at(t);
      return m.arena->planned().program.part(id).shape;
    };
    const std::vector<PartsRun> runs = parts_of(shape(members[0], true), members[0].get().attributes.integer("dim"), ranks);
    const std::int64_t whole = shape(members[0], true).elements();
    for (const Member& m : members) {
      if (shape(m, true) != shape(members[0], true)) refuse(members[0], m, "shapes");
    }
    for (const PartsRun& run : runs) {
      for (std::int64_t r = 0; r < ranks; ++r) {
        const Member& owner = members[static_cast<std::size_t>(r)];
        const std::int64_t first = run.whole + r * run.count;
        const std::int64_t padding = std::min(whole - first, shape(owner, false).elements() - run.part);
        if (gathers) {
          const std::vector<double> part = owner.arena->read_at(owner.get().inputs[t], run.part, run.count, padding);
          for (const Member& m : members) m.arena->write_at(m.get().outputs[t], first, part);
        } else {
          std::vector<double> sum(static_cast<std::size_t>(run.count));
          for (const Member& m : members) add(sum, m.arena->read_at(m.get().inputs[t], first, run.count, padding));
          owner.arena->write_at(owner.get().outputs[t], run.part, sum);
        }
      }
    }
  }
}

/// Each element of an output comes from the member that held its part of dimension "dim".
void all_to_all(std::span<const Member> members) {
  const Attributes& attributes = members[0].get().attributes;
  const auto dim = static_cast<int>(attributes.integer("dim")), to = static_cast<int>(attributes.integer("to"));
  for (std::size_t t = 0; t < members[0].get().inputs.size(); ++t) {
    std::vector<reference::Value> sent;
    for (const Member& m : members) sent.push_back(m.arena->read(m.get().inputs[t]));
    for (std::size_t r = 0; r < members.size(); ++r) {
      const Member& receiver = members[r];
      const Shape out = receiver.arena->planned().program.part(receiver.get().outputs.at(t)).shape;
      std::vector<double> received;
      for (std::int64_t element = 0; element < out.elements(); ++element) {
        std::vector<std::int64_t> index(static_cast<std::size_t>(out.rank()));
        for (std::int64_t rest = element, d = out.rank() - 1; d >= 0; --d) {
          index[static_cast<std::size_t>(d)] = rest % out[static_cast<int>(d)];
          rest /= out[static_cast<int>(d)];
        }
        std::int64_t& divided = index[static_cast<std::size_t>(dim)];
        index[static_cast<std::size_t>(to)] += static_cast<std::int64_t>(r) * out[to];
        const std::int64_t part = out[dim] / static_cast<std::int64_t>(members.size());
        const auto from = static_cast<std::size_t>(divided / part);
        divided %= part;
        const Shape& in = sent.at(from).shape;
        if (in[dim] != part || in[to] != out[to] * static_cast<std::int64_t>(members.size()))
          refuse(receiver, members[from], "shapes");
        std::int64_t source = 0;
        for (int d = 0; d < in.rank(); ++d) source = source * in[d] + index[static_cast<std::size_t>(d)];
        received.push_back(sent[from].at(source));
      }
      receiver.arena->write_at(receiver.get().outputs[t], 0, received);
    }
  }
}

/// Each member has what the one before it had.
void shift(std::span<const Member> members) {
  for (std::size_t t = 0; t < members[0].get().inputs.size(); ++t) {
    std::vector<reference::Value> sent;
    for (const Member& m : members) sent.push_back(m.arena->read(m.get().inputs[t]));
    for (std::size_t r = 0; r < members.size(); ++r)
      members[r].arena->write(members[r].get().outputs.at(t), sent[(r + members.size() - 1) % members.size()]);
  }
}

}  // namespace

void run_collective(std::span<const Member> members) {
  begin(members);
  const std::string_view op = members[0].get().op->name();
  if (op == "all_reduce") return all_reduce(members);
  if (op == "all_gather" || op == "reduce_scatter") return move_parts(members, op == "all_gather");
  if (op == "all_to_all") return all_to_all(members);
  if (op == "shift") return shift(members);
  throw UsageError("the collective '" + std::string(op) +
                   "' is a plugin's own, whose kernel needs ranks in processes of their own: steps with it cannot be run here");
}

void run_message(const Member& sender, const Member& receiver) {
  sender.arena->set_instruction(sender.instruction);
  receiver.arena->set_instruction(receiver.instruction);
  const Program &from = sender.arena->planned().program, &to = receiver.arena->planned().program;
  if (sender.get().op->name() != "send" || receiver.get().op->name() != "receive") refuse(sender, receiver, "ops");
  const TensorId sent = sender.get().inputs.at(0), received = receiver.get().outputs.at(0);
  if (from[sent].dtype != to[received].dtype || from.part(sent).shape != to.part(received).shape)
    refuse(sender, receiver, "tensors");
  receiver.arena->write(received, sender.arena->read(sent));
}

}  // namespace consist::interpreter
