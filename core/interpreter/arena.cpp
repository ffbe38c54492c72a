#include "core/interpreter/arena.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::interpreter {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// Bytes of the smallest element that instructions touch.
std::int64_t smallest_element(const Program& program) {
  std::int64_t smallest = 4;
  for (const Instruction& i : program.instructions) {
    if (!i.op->touches_memory()) continue;
    for (const auto* tensors : {&i.inputs, &i.outputs}) {
      for (const TensorId id : *tensors) {
        if (id != no_tensor) smallest = std::min(smallest, static_cast<std::int64_t>(size_of(program[id].dtype)));
      }
    }
  }
  return smallest;
}

}  // namespace

Arena::Arena(std::vector<const Planned*> programs) : programs_(std::move(programs)) {
  for (const Planned* p : programs_) unit_ = std::min(unit_, smallest_element(p->program));
  for (std::size_t s = 0; s < memory_spaces; ++s) {
    std::int64_t bytes = 0;
    for (const Planned* p : programs_) bytes = std::max(bytes, p->plan.bytes[s]);
    spaces_[s].values.assign(static_cast<std::size_t>(bytes / unit_), nothing);
    spaces_[s].tags.resize(spaces_[s].values.size());
  }
}

void Arena::go_on_with(std::size_t index) {
  if (index == current_) return;
  std::map<std::string_view, Tag> known;
  for (const Tensor& tensor : planned().program.tensors) {
    if (tensor.state) known.emplace(tensor.name, Tag(current_, tensor.storage, -1));
  }
  current_ = index;
  const Program& program = planned().program;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    const auto before = known.find(tensor.name);
    if (!tensor.state || before == known.end() || planned().plan.address[t] < 0) continue;
    const Place place = place_of_tensor(static_cast<TensorId>(t));
    const std::int64_t cells = program.part(static_cast<TensorId>(t)).shape.elements() * place.step;
    require_inside(place, place.begin, cells);
    for (std::int64_t at = place.begin; at < place.begin + cells; ++at) {
      Tag& tag = spaces_[place.space].tags[static_cast<std::size_t>(at)];
      if (tag.same_owner(before->second)) tag = Tag(current_, tensor.storage, -1);
    }
  }
}

Arena::Place Arena::place_of_tensor(TensorId tensor) const {
  const Tensor& t = planned().program[tensor];
  const std::int64_t address = planned().plan.address[static_cast<std::size_t>(tensor)];
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  if (address < 0) throw ProgramError("'" + t.name + "' has no place in memory");
  if (address % size != 0 || size % unit_ != 0) throw ProgramError("'" + t.name + "' lies between two elements");
  return {static_cast<std::size_t>(t.space), address / unit_, size / unit_, Tag(current_, t.storage, instruction_), t.dtype};
}

void Arena::require_inside(const Place& place, std::int64_t at, std::int64_t cells) const {
  if (cells > 0 && (at < 0 || at + cells > static_cast<std::int64_t>(spaces_[place.space].values.size())))
    throw ProgramError("bytes [" + std::to_string(at * unit_) + ", " + std::to_string((at + cells) * unit_) +
                       ") do not lie in the rank's memory");
}

template <std::int64_t step>
bool Arena::are_whole(const double* values, const Tag* tags, std::int64_t count, Tag owner) {
  std::uint64_t others = 0, parted = 0, empty = 0;  // without a branch, so that several are looked at together
  for (std::int64_t i = 0; i < count; ++i) {
    others |= tags[i * step].difference(owner);
    for (std::int64_t part = 1; part < step; ++part) parted |= tags[i * step + part].difference(tags[i * step]);
    empty |= static_cast<std::uint64_t>(std::isnan(values[i * step]));
  }
  return others >> 30 == 0 && (parted | empty) == 0;
}

void Arena::read_run(const Place& place, std::int64_t at, std::int64_t count, TensorId tensor, double* to) const {
  require_inside(place, at, count * place.step);
  const double* const values = spaces_[place.space].values.data() + at;
  const Tag* const tags = spaces_[place.space].tags.data() + at;
  if (place.step == 1 && are_whole<1>(values, tags, count, place.tag)) {
    std::copy_n(values, count, to);
    return;
  }
  if ((place.step == 2 && are_whole<2>(values, tags, count, place.tag)) ||
      (place.step == 4 && are_whole<4>(values, tags, count, place.tag))) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = values[i * place.step];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {  // elements of another size, or one that is not whole, which is named
    const std::int64_t first = i * place.step;
    bool whole = tags[first].same_owner(place.tag) && !std::isnan(values[first]);
    for (std::int64_t part = 1; part < place.step; ++part) whole = whole && tags[first + part] == tags[first];
    if (!whole) {
      std::int64_t part = 0;  // the cell that is not the tensor's, or the one that another has written
      while (part + 1 < place.step && tags[first + part].same_owner(place.tag)) ++part;
      refuse(tensor, tags[first + part].same_owner(place.tag) ? Tag() : tags[first + part], at + first);
    }
    to[i] = values[first];
  }
}

void Arena::write_run(const Place& place, std::int64_t at, std::int64_t count, const double* from) {
  require_inside(place, at, count * place.step);
  Space& space = spaces_[place.space];
  double* const values = space.values.data() + at;
  if (rounds_) {
    for (std::int64_t i = 0; i < count; ++i) values[i * place.step] = reference::rounded(from[i], place.dtype);
  } else if (place.step == 1) {
    std::copy_n(from, count, values);
  } else {
    for (std::int64_t i = 0; i < count; ++i) values[i * place.step] = from[i];
  }
  std::fill_n(space.tags.begin() + at, count * place.step, place.tag);
}

void Arena::refuse(TensorId tensor, Tag tag, std::int64_t at) const {
  const Program& program = planned().program;
  std::string by = "nobody wrote it";
  if (tag.has_owner()) {
    const Program& writer = programs_.at(tag.program())->program;
    by = "it was overwritten ";
    by += tag.storage() == no_tensor ? "by the scratch of " : "with '" + writer[tag.storage()].name + "' by ";
    by += tag.writer() < 0 ? "the trainer" : place_of(writer, tag.writer());
  }
  throw ProgramError((instruction_ < 0 ? "the trainer" : place_of(program, instruction_)) + " reads '" + program[tensor].name +
                     "' at byte " + std::to_string(at * unit_) + " of the " + std::string(name_of(program[tensor].space)) +
                     "'s memory, but " + by);
}

reference::Value Arena::read(TensorId tensor) const {
  const Tensor& t = planned().program[tensor];
  reference::Value value = reference::zeros(t.dtype, planned().program.part(tensor).shape);
  const Place place = place_of_tensor(tensor);
  const std::int64_t columns = t.row_stride != 0 ? value.shape.last() : value.shape.elements();
  for (std::int64_t first = 0, row = 0; first < value.shape.elements(); first += columns, ++row)
    read_run(place, place.begin + row * t.row_stride * place.step, columns, tensor, value.data.data() + first);
  return value;
}

void Arena::write(TensorId tensor, const reference::Value& value) {
  const Shape expected = planned().program.part(tensor).shape;
  if (static_cast<std::int64_t>(value.data.size()) != expected.elements()) {
    throw ProgramError((instruction_ < 0 ? "the trainer" : place_of(planned().program, instruction_)) + " makes " +
                       std::to_string(value.data.size()) + " elements of '" + planned().program[tensor].name + "', which has " +
                       expected.text());
  }
  write_elements(tensor, 0, value.data);
}

void Arena::write_elements(TensorId tensor, std::int64_t first, const std::vector<double>& values) {
  const Tensor& t = planned().program[tensor];
  const Place place = place_of_tensor(tensor);
  const auto count = static_cast<std::int64_t>(values.size());
  if (t.row_stride == 0) return write_run(place, place.begin + first * place.step, count, values.data());
  const std::int64_t columns = planned().program.part(tensor).shape.last();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / columns, column = (first + done) % columns,
                       run = std::min(columns - column, count - done);
    write_run(place, place.begin + (row * t.row_stride + column) * place.step, run, values.data() + done);
    done += run;
  }
}

std::vector<double> Arena::read_at(TensorId tensor, std::int64_t first, std::int64_t count, std::int64_t padding) const {
  const Place place = place_of_tensor(tensor);
  const std::int64_t at = place.begin + first * place.step, checked = std::clamp<std::int64_t>(padding, 0, count);
  std::vector<double> values(static_cast<std::size_t>(count));
  read_run(place, at, checked, tensor, values.data());
  require_inside(place, at + checked * place.step, (count - checked) * place.step);
  for (std::int64_t i = checked; i < count; ++i)
    values[static_cast<std::size_t>(i)] = spaces_[place.space].values[static_cast<std::size_t>(at + i * place.step)];
  return values;
}

void Arena::write_at(TensorId tensor, std::int64_t first, std::span<const double> values) {
  const Place place = place_of_tensor(tensor);
  write_run(place, place.begin + first * place.step, std::ssize(values), values.data());
}

void Arena::scribble(std::int64_t begin, std::int64_t bytes) {
  const std::int64_t first = begin / unit_, count = (bytes + unit_ - 1) / unit_;
  std::fill_n(spaces_[0].values.begin() + first, count, nothing);
  std::fill_n(spaces_[0].tags.begin() + first, count, Tag(current_, no_tensor, instruction_));
}

}  // namespace consist::interpreter
