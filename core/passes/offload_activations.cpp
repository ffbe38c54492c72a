#include "core/passes/offload_activations.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"
#include "core/passes/copy_times.h"
#include "core/passes/kept_activations.h"
#include "core/passes/layer_range.h"

namespace consist {
namespace {

/// Limit on activations that are in flight, or back and not yet read, in layers.
constexpr std::int64_t most_layers_on_their_way = 2;
/// The share of a layer's bytes that stays, in its smallest tensors: so many copies for so little.
constexpr double share_that_stays = 0.01;

class Offloader {
 public:
  Offloader(Program& program, const OffloadRequest& request) : program_(program), request_(request) {}

  /// Returns whether anything is moved.
  bool run() {
    choose();
    const CopyTimes times(program_);
    for (Move& move : moves_) move.seconds = times.seconds(program_, move.kept);
    for (bool changes = true; changes;) {
      changes = false;
      times.leave(moves_, most_bytes_);
      times.come_back(moves_, most_bytes_);
      for (Move& move : moves_) {
        if (move.stays || move.arrive > move.release) continue;
        move.stays = changes = true;
      }
    }
    std::erase_if(moves_, [](const Move& move) { return move.stays; });
    if (!moves_.empty()) insert();
    return !moves_.empty();
  }

 private:
  bool wanted(const Kept& kept) const {
    return kept.waits && kept.layer >= request_.first_layer && (request_.last_layer < 0 || kept.layer <= request_.last_layer);
  }

  void choose() {
    std::map<std::pair<std::int16_t, std::int16_t>, std::vector<Kept>> by_layer;  // and micro-batch
    for (Kept& kept : kept_activations(program_)) {
      if (kept.layer >= 0) by_layer[{kept.micro_batch, kept.layer}].push_back(std::move(kept));
    }
    std::int64_t most = 0;
    for (auto& [of, all] : by_layer) {
      std::stable_sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.bytes < b.bytes; });
      std::int64_t bytes = 0, small = 0;
      for (const Kept& kept : all) bytes += kept.bytes;
      for (const Kept& kept : all) {
        small += kept.bytes;
        const bool is_small = static_cast<double>(small) <= share_that_stays * static_cast<double>(bytes);
        moves_.push_back({.kept = kept, .stays = is_small || !wanted(kept)});
      }
      most = std::max(most, bytes);
    }
    most_bytes_ = most_layers_on_their_way * most;
  }

  void insert() {
    Inserter inserter(program_);
    std::map<TensorId, std::vector<TensorId>> copies;  // on the host, by storage, in the order of its values
    // In the order in which they leave, then in that in which they are read again: the queues run them so.
    std::sort(moves_.begin(), moves_.end(), leaves_before);
    for (const Move& move : moves_)
      inserter.after(move.kept.written, [&](Builder& builder) { copies[move.kept.storage] = copy_out(builder, move.kept); });
    for (const Move& move : moves_) {
      if (move.release == move.kept.last_forward) continue;  // it is free there anyway
      inserter.after(move.release, [&](Builder& builder) {
        builder.tag.inserted_by = offload_name;
        builder.emit("release", move.kept.values);
      });
    }
    std::sort(moves_.begin(), moves_.end(), comes_back_before);
    std::map<TensorId, TensorId> back;  // by value
    for (const Move& move : moves_) {
      inserter.after(move.arrive - 1, [&](Builder& builder) { copy_back(builder, move.kept, copies[move.kept.storage], back); });
    }
    for (Instruction& i : program_.instructions) {
      if (i.tag.phase == Phase::forward || std::string_view(i.tag.inserted_by) == offload_name) continue;
      for (TensorId& input : i.inputs) {
        if (const auto found = back.find(input); found != back.end()) input = found->second;
      }
    }
    inserter.apply();
  }

  std::vector<TensorId> copy_out(Builder& builder, const Kept& kept) {
    builder.tag.inserted_by = offload_name;
    std::vector<TensorId> copies;
    for (TensorId value : kept.values) {
      copies.push_back(builder.emit_one("copy", {value}, {}, program_[value].name));
      program_[copies.back()].space = MemorySpace::host;
      program_[copies.back()].role = Role::activation;
      program_.instructions.back().queue = Queue::device_to_host();
    }
    return copies;
  }

  /// Copies back into a storage of its own, with the same offsets, and moves all that backward makes in their memory there.
  void copy_back(Builder& builder, const Kept& kept, const std::vector<TensorId>& copies, std::map<TensorId, TensorId>& back) {
    builder.tag = program_.instructions[static_cast<std::size_t>(kept.first_use)].tag;
    builder.tag.inserted_by = offload_name;
    const TensorId first = kept.values[0];
    const bool is_whole = kept.values.size() == 1 && program_[first].offset == 0 && program_[first].row_stride == 0 &&
                          program_.bytes(first) == program_.bytes(kept.storage);
    TensorId storage = no_tensor;
    if (!is_whole)
      storage = builder.storage(program_[kept.storage].name, program_.bytes(kept.storage), program_[kept.storage].role);
    for (std::size_t v = 0; v < copies.size(); ++v) {
      const Tensor was = program_[kept.values[v]];
      const TensorId copy = builder.emit_one("copy", {copies[v]}, {}, was.name);
      program_.instructions.back().queue = Queue::host_to_device();
      Tensor& now = program_[copy];
      now.role = was.role;
      now.recomputed = was.recomputed;
      now.offset = was.offset;
      now.row_stride = was.row_stride;
      if (storage == no_tensor) storage = copy;
      now.storage = storage;
      back[kept.values[v]] = copy;
    }
    for (TensorId later : kept.later) program_[later].storage = storage;
  }

  Program& program_;
  const OffloadRequest& request_;
  std::vector<Move> moves_;
  std::int64_t most_bytes_ = 0;  // that may be in flight
};

}  // namespace

std::int64_t bytes_to_host(const Program& program) {
  std::int64_t bytes = 0;
  for (const Instruction& i : program.instructions) {
    if (std::string_view(i.tag.inserted_by) == offload_name && i.queue == Queue::device_to_host())
      bytes += program.bytes(i.outputs[0]);
  }
  return bytes;
}

void check_offloaded_layers(const Program& whole, const OffloadRequest& request) {
  if (!request.any()) return;
  int layers = 0;
  for (const Instruction& i : whole.instructions) layers = std::max(layers, i.tag.layer + 1);
  if (request.first_layer < layers && request.last_layer < layers) return;
  throw UsageError("--offload-activations " + text_of(request) + ": the model has the layers 0 to " + std::to_string(layers - 1));
}

OffloadRequest parse_offload(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {.on = true};
  OffloadRequest request{.on = true};
  std::tie(request.first_layer, request.last_layer) =
      parse_layers(text, "--offload-activations",
                   "--offload-activations is '" + text + "'; it must be none, all, or layers such as 0-15 or 3");
  return request;
}

std::string text_of(const OffloadRequest& request) {
  if (!request.on) return "none";
  if (request.last_layer < 0) return "all";
  return std::to_string(request.first_layer) + "-" + std::to_string(request.last_layer);
}

void offload_activations(Program& program, const OffloadRequest& request) {
  if (!request.any()) return;
  if (Offloader(program, request).run() || program.stage_axis >= 0) return;
  throw UsageError("--offload-activations " + text_of(request) +
                   ": nothing would be moved: backward wants what these layers keep again before it could have gone to the host "
                   "and come back. The last layers always stay on the device; name earlier ones, or leave the option out");
}

}  // namespace consist
