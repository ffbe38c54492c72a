#include "core/state/training_state.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "consist/bfloat16.h"
#include "consist/edit.h"
#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"
#include "core/program/local_ranges.h"
#include "core/state/initial_values.h"
#include "core/state/shared_states.h"
#include "core/state/staged_upload.h"
#include "core/state/weights_in_blocks.h"

namespace consist {
namespace {

constexpr std::int64_t zeros_at_once = std::int64_t{1} << 20;  // bytes

/// f32 values in a tensor's own dtype, for upload.
void encode(std::span<const float> values, DType dtype, char* bytes) {
  if (dtype == DType::f32) {
    std::memcpy(bytes, values.data(), values.size_bytes());
  } else if (dtype == DType::bf16) {
    auto* out = reinterpret_cast<std::uint16_t*>(bytes);
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = to_bfloat16(values[i]);
  } else {
    throw ProgramError("weights cannot be stored as " + std::string(name_of(dtype)));
  }
}

/// True if the parameter is nothing but its f32 master, rounded, element by element.
bool holds_masters_values(const Program& program, const Parameter& p) {
  return p.master != no_tensor && program[p.master].dtype == DType::f32 &&
         program[p.tensor].placements == program[p.master].placements;
}

/// True if the program has states that `kept` lacks.
bool has_other_states(const Program& program, const std::map<std::string, std::int64_t>& kept) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.state && tensor.storage == static_cast<TensorId>(t) && !kept.contains(tensor.name)) return true;
  }
  return false;
}

/// Adds addresses for the program's states that `addresses` lacks, behind those that it has. Throws ProgramError for one that a
/// training must keep.
void place_states(const Program& program, std::int64_t padding, std::map<std::string, std::int64_t>& addresses) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (!tensor.state || tensor.storage != static_cast<TensorId>(t) || addresses.contains(tensor.name)) continue;
    if (tensor.role == Role::optimizer_state && tensor.state_kind != StateKind::discardable)
      throw ProgramError("text is generated with the state '" + tensor.name + "', which the step that is trained does not keep");
    addresses[tensor.name] = addresses[""];  // where what persists ends
    addresses[""] += aligned(program.bytes(static_cast<TensorId>(t)) + padding);
  }
}

}  // namespace

TrainingState::TrainingState(NamedPrograms programs, Device& device, const CommunicatorOfQueue& communicators, int rank,
                             std::int64_t memory_limit)
    : device_(device), rank_(rank), memory_limit_(memory_limit > 0 ? memory_limit : device.info().memory_bytes) {
  Prepared prepared = prepare(std::move(programs), communicators);
  programs_ = std::move(prepared.programs);
  device_bytes_ = prepared.device_bytes;
  host_bytes_ = prepared.host_bytes;
  values_ = values_of(step().program(), rank_);
}

TrainingState::Prepared TrainingState::prepare(NamedPrograms programs, const CommunicatorOfQueue& communicators) const {
  Prepared prepared;
  for (NamedProgram& named : programs)
    prepared.programs.push_back(
        {std::move(named.name), std::make_unique<PreparedProgram>(std::move(named.program), device_, communicators)});
  Entry& first = prepared.programs.front();
  const std::map<std::string, std::int64_t> kept = state_addresses(first.program->program(), first.program->plan());
  std::map<std::string, std::int64_t> all = kept;
  std::int64_t padding = 0;
  for (Entry& entry : prepared.programs) {
    if (&entry != &first) check_shared_states(first.program->program(), entry.program->program(), entry.name);
    entry.has_states = has_other_states(entry.program->program(), kept);
    if (entry.has_states) padding = std::max(padding, entry.program->program().padding());
  }
  for (const Entry& entry : prepared.programs) {
    if (entry.has_states) place_states(entry.program->program(), padding, all);
  }
  for (const Entry& entry : prepared.programs) {
    const MemoryPlan& plan = &entry == &first   ? first.program->memory()
                             : entry.has_states ? entry.program->plan(&all)
                                                : entry.program->plan(&kept);
    prepared.device_bytes = std::max(prepared.device_bytes, plan.bytes[0]);
    prepared.host_bytes = std::max(prepared.host_bytes, plan.bytes[1]);
  }
  check_limit(prepared);
  return prepared;
}

TrainingState::~TrainingState() {
  programs_.clear();  // executables go before the memory they use
  replaced_.clear();
  release_arenas();
}

PreparedProgram* TrainingState::find(std::string_view name) {
  const auto found = std::find_if(programs_.begin(), programs_.end(), [&](const Entry& entry) { return entry.name == name; });
  return found == programs_.end() ? nullptr : found->program.get();
}

void TrainingState::release_arenas() {
  if (device_arena_ != nullptr) device_.release(MemorySpace::device, device_arena_);
  if (host_arena_ != nullptr) device_.release(MemorySpace::host, host_arena_);
  device_arena_ = host_arena_ = nullptr;
}

std::map<std::string, TensorId> TrainingState::kept_tensors() const {
  std::map<std::string, TensorId> kept;
  for (const Parameter& p : step().program().parameters) {
    kept[p.name + " as forward reads it"] = p.tensor;
    if (p.master != no_tensor) kept[p.name + ".master"] = p.master;
  }
  for (const Value& value : values_) kept[value.name] = value.tensor;
  return kept;
}

void TrainingState::replace_programs(NamedPrograms programs, const CommunicatorOfQueue& communicators, bool profile) {
  std::map<std::string, std::vector<char>> values;
  for (const auto& [name, tensor] : kept_tensors()) {
    std::vector<char>& bytes = values[name];
    bytes.resize(static_cast<std::size_t>(step().program().bytes(tensor)));
    device_.download(bytes.data(), step().buffer(tensor).data, static_cast<std::int64_t>(bytes.size()));
  }
  Prepared prepared = prepare(std::move(programs), communicators);
  const auto same_name = [](const Entry& one, const Entry& other) { return one.name == other.name; };
  if (!std::equal(programs_.begin(), programs_.end(), prepared.programs.begin(), prepared.programs.end(), same_name))
    throw ProgramError("programs are replaced by those of other names");
  for (std::size_t n = 0; n < programs_.size(); ++n) {  // in place, as the job's thread may look at them
    std::swap(programs_[n].program, prepared.programs[n].program);
    programs_[n].has_states = prepared.programs[n].has_states;
    replaced_.push_back(std::move(prepared.programs[n].program));
  }
  device_bytes_ = prepared.device_bytes;
  host_bytes_ = prepared.host_bytes;
  release_arenas();
  named_.clear();
  values_ = values_of(step().program(), rank_);
  allocate(profile);
  const std::map<std::string, TensorId> kept = kept_tensors();
  for (const auto& [name, bytes] : values) {
    const auto found = kept.find(name);
    if (found == kept.end() || step().program().bytes(found->second) != static_cast<std::int64_t>(bytes.size()))
      throw ProgramError("the program that replaces another has no '" + name + "' of the same size");
    device_.upload(step().buffer(found->second).data, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
}

void TrainingState::check_limit(const Prepared& prepared) const {
  if (memory_limit_ <= 0 || prepared.device_bytes <= memory_limit_) return;
  PreparedProgram& first = *prepared.programs.front().program;
  std::string message = "this configuration needs " + bytes_text(prepared.device_bytes) + " of device memory per rank, " +
                        bytes_text(memory_limit_) + " may be used. At the peak it holds";
  for (const MemoryShare& share : memory_by_role(first.program(), first.memory(), first.workspace_bytes())) {
    message += "\n  " + bytes_text(share.bytes) + " " + share.what;
  }
  message += "\nThe largest tensors:";
  for (const MemoryShare& share : largest_tensors(first.program(), first.memory(), 5)) {
    message += "\n  " + bytes_text(share.bytes) + " " + share.what;
  }
  message +=
      "\nWhat makes it smaller: a smaller --batch or --sequence (activations shrink in proportion; --accumulation keeps the "
      "step's batch), "
      "a 16-bit --precision, a smaller model, or a larger --memory-limit";
  throw TooLarge(message, prepared.device_bytes);
}

void TrainingState::allocate(bool profile) {
  device_arena_ = device_.allocate(MemorySpace::device, device_bytes_);
  if (host_bytes_ > 0) host_arena_ = device_.allocate(MemorySpace::host, host_bytes_);
  for (Entry& entry : programs_) {
    const bool is_first = &entry == &programs_.front();
    entry.program->bind(device_arena_, host_arena_, is_first && profile);
    if (!entry.has_states) fill_constants(*entry.program);
  }
}

void TrainingState::restore_constants(std::string_view name) {
  for (Entry& entry : programs_) {
    if (entry.name == name && entry.has_states) fill_constants(*entry.program);
  }
}

void TrainingState::fill_constants(PreparedProgram& program) {
  for (const Constant& constant : program.program().constants) {
    const Tensor& t = program.program()[constant.tensor];
    std::vector<float> values(static_cast<std::size_t>(t.shape.elements()));
    constant.fill(values);
    constexpr auto size = static_cast<std::int64_t>(sizeof(float));
    for (const LocalRange& range : local_ranges(t.shape, t.placements, program.program().mesh, rank_))
      device_.upload(program.buffer(constant.tensor).as<float>() + range.local, values.data() + range.logical,
                     range.count * size);
  }
}

void TrainingState::zero(TensorId tensor) {
  const Buffer buffer = step().buffer(tensor);
  const std::int64_t bytes = step().program().bytes(tensor);
  const std::vector<char> zeros(static_cast<std::size_t>(std::min<std::int64_t>(bytes, zeros_at_once)), 0);
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(zeros.size())) {
    device_.upload(buffer.as<char>() + at, zeros.data(),
                   std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(zeros.size())));
  }
}

void TrainingState::write_tensor(StagedUpload& upload, TensorId tensor, TensorId rounded, MakeElements make, bool own) {
  const Program& program = step().program();
  const Tensor& t = program[tensor];
  std::vector<StagedUpload::Target> targets;
  for (TensorId target : {tensor, rounded}) {
    if (target != no_tensor)
      targets.push_back({step().buffer(target).data, static_cast<std::int64_t>(size_of(program[target].dtype))});
  }
  const std::vector<LocalRange> ranges = own ? std::vector<LocalRange>{{0, 0, program.local(tensor).elements()}}
                                             : local_ranges(t.shape, t.placements, program.mesh, rank_);
  const std::int64_t elements = ranges.empty() ? 0 : ranges.back().local + ranges.back().count;
  const DType rounded_to = rounded == no_tensor ? DType::f32 : program[rounded].dtype;
  upload.write(targets, elements,
               [ranges, make = std::move(make), size = targets[0].element_bytes, rounded_to](
                   std::int64_t first, std::int64_t count, std::span<char* const> out) {
                 for (const LocalRange& range : ranges_within(ranges, first, count))
                   make(range.logical, range.count, out[0] + range.local * size);
                 if (out.size() > 1)
                   encode({reinterpret_cast<const float*>(out[0]), static_cast<std::size_t>(count)}, rounded_to, out[1]);
               });
}

void TrainingState::set_parameter(StagedUpload& upload, const Parameter& parameter, const MakeFloats& make) {
  const Program& program = step().program();
  const auto elements_in = [&make, &blocks = parameter.blocks](DType dtype) -> MakeElements {
    if (blocks.any()) {
      return [make, blocks](std::int64_t logical, std::int64_t count, char* out) {
        encode_part(blocks, make, logical, {reinterpret_cast<std::uint8_t*>(out), static_cast<std::size_t>(count)});
      };
    }
    if (dtype == DType::f32) {
      return [make](std::int64_t logical, std::int64_t count, char* out) {
        make(logical, {reinterpret_cast<float*>(out), static_cast<std::size_t>(count)});
      };
    }
    return [make, dtype](std::int64_t logical, std::int64_t count, char* out) {
      std::array<float, StagedUpload::most_elements> values;
      const std::span<float> made = std::span(values).first(static_cast<std::size_t>(count));
      make(logical, made);
      encode(made, dtype, out);
    };
  };
  if (holds_masters_values(program, parameter)) {
    write_tensor(upload, parameter.master, parameter.tensor, elements_in(DType::f32));
  } else {
    for (TensorId tensor : {parameter.tensor, parameter.master}) {
      if (tensor != no_tensor) write_tensor(upload, tensor, no_tensor, elements_in(program[tensor].dtype));
    }
  }
  if (as_allocated_) return;  // states are zero
  for (const ParameterState& kept : parameter.states) zero(kept.tensor);
}

int filling_threads(const Job& job) {
  constexpr int most = 32;  // with more, initial weights are made faster than any bus takes them
  return std::clamp(usable_cores() / job.local_size(), 1, most);
}

void TrainingState::initialize(std::uint64_t seed, int threads) {
  StagedUpload upload(device_, threads);
  for (const Parameter& p : step().program().parameters) {
    set_parameter(upload, p, [seed, &p](std::int64_t first, std::span<float> out) { initial_values(out, seed, p, first); });
  }
  upload.finish();
  zero_states();
  as_allocated_ = false;
}

void TrainingState::load_weights(const ReadElements& read, int threads) {
  StagedUpload upload(device_, threads);
  for (const Parameter& p : step().program().parameters) {
    set_parameter(upload, p, [&read, &p](std::int64_t first, std::span<float> out) { read(p.name, first, out); });
  }
  upload.finish();
  zero_states();
  as_allocated_ = false;
}

void TrainingState::load_values(std::span<const Value> values, const ReadValue& read, int threads) {
  const Program& program = step().program();
  std::map<TensorId, const Parameter*> of_master;
  for (const Parameter& p : program.parameters) {
    if (p.master != no_tensor) of_master.emplace(p.master, &p);
  }
  StagedUpload upload(device_, threads);
  for (const Value& value : values) {
    const auto parameter = of_master.find(value.tensor);
    const bool is_master = parameter != of_master.end();
    if (is_master && !holds_masters_values(program, *parameter->second))
      throw ProgramError("'" + value.name + "' and its master are laid out differently");
    write_tensor(
        upload, value.tensor, is_master ? parameter->second->tensor : no_tensor,
        [&read, &value](std::int64_t logical, std::int64_t count, char* out) { read(value, logical, count, out); },
        value.kind == StateKind::per_rank);
  }
  upload.finish();
  as_allocated_ = false;
}

void TrainingState::zero_states() {
  if (as_allocated_) return;
  for (const Value& value : values_) {
    if (!value.of_parameter) zero(value.tensor);
  }
}

TensorId TrainingState::find_named(PreparedProgram& program, std::string_view name) {
  auto& known = named_[&program];
  if (const auto found = known.find(name); found != known.end()) return found->second;
  // The newest tensor of that name: a metric's last value.
  const std::vector<Tensor>& tensors = program.program().tensors;
  TensorId newest = no_tensor;
  for (std::size_t t = tensors.size(); t-- > 0 && newest == no_tensor;) {
    const bool right_role = tensors[t].role == Role::input || tensors[t].role == Role::metric;
    if (right_role && tensors[t].name == name) newest = static_cast<TensorId>(t);
  }
  return known.emplace(name, newest).first->second;
}

TensorId TrainingState::named(PreparedProgram& program, std::string_view name) {
  const TensorId tensor = find_named(program, name);
  if (tensor == no_tensor) throw ProgramError("the program has no input or metric '" + std::string(name) + "'");
  return tensor;
}

bool TrainingState::has_input(PreparedProgram& program, std::string_view name) {
  return find_named(program, name) != no_tensor;
}

LocalPart TrainingState::input_part(PreparedProgram& program, std::string_view name) {
  return program.program().part(named(program, name));
}

void TrainingState::write_input(PreparedProgram& program, std::string_view name, const void* data, std::int64_t bytes) {
  const TensorId tensor = named(program, name);
  if (program.program().bytes(tensor) != bytes) {
    throw ProgramError("input '" + std::string(name) + "' holds " + std::to_string(program.program().bytes(tensor)) +
                       " bytes, given " + std::to_string(bytes));
  }
  device_.upload(program.buffer(tensor).data, data, bytes);
}

float TrainingState::read_metric(PreparedProgram& program, std::string_view name) {
  float value = 0;
  device_.download(&value, program.buffer(named(program, name)).data, sizeof value);
  return value;
}

void TrainingState::read_metric(PreparedProgram& program, std::string_view name, std::span<float> out) {
  const TensorId tensor = named(program, name);
  if (program.program().bytes(tensor) != static_cast<std::int64_t>(out.size_bytes()))
    throw ProgramError("metric '" + std::string(name) + "' holds " + std::to_string(program.program().bytes(tensor)) + " bytes, asked for " +
                       std::to_string(out.size_bytes()));
  device_.download(out.data(), program.buffer(tensor).data, static_cast<std::int64_t>(out.size_bytes()));
}

std::vector<float> TrainingState::read_metrics(PreparedProgram& program, std::string_view name) {
  std::vector<float> values(static_cast<std::size_t>(program.program().local(named(program, name)).elements()));
  read_metric(program, name, values);
  return values;
}

}  // namespace consist
