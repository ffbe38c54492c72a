#include "core/plan/mixture.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "core/base/quantity_text.h"
#include "core/base/rethrow.h"

namespace consist {
namespace {

std::vector<std::int64_t> weights_of(const std::vector<Mixture::Part>& parts) {
  std::vector<std::int64_t> weights;
  for (const Mixture::Part& part : parts) weights.push_back(part.choice.weight);
  return weights;
}

bool has(const std::vector<Field>& fields, const Field& field) {
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

}  // namespace

TurnsOfParts::TurnsOfParts(std::vector<std::int64_t> weights) : weights_(std::move(weights)), of_part_(weights_.size()) {
  const auto parts = static_cast<std::int64_t>(weights_.size());
  std::int64_t period = 0;
  for (const std::int64_t weight : weights_) period += weight;
  if (parts < 1 || period > most_period) throw Error("turns of " + std::to_string(parts) + " parts in " + std::to_string(period));
  // Takes, of the parts that may have a turn without getting ahead, the one whose turn must come soonest. Numbers are multiples
  // of 1 / (period * (2 * parts - 2)).
  const std::int64_t fine = std::max<std::int64_t>(2 * parts - 2, 1);
  for (std::int64_t turn = 1; turn <= period; ++turn) {
    std::optional<std::size_t> chosen;
    std::int64_t chosen_slack = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const std::int64_t behind = fine * (weights_[k] * turn - static_cast<std::int64_t>(of_part_[k].size()) * period);
      if (behind < period && parts > 1) continue;
      const std::int64_t slack = (fine - 1) * period - behind;  // divided by its weight: how long it can wait
      if (chosen && slack * weights_[*chosen] >= chosen_slack * weights_[k]) continue;
      chosen = k;
      chosen_slack = slack;
    }
    if (!chosen) throw Error("no part may have turn " + std::to_string(turn) + " of " + std::to_string(period));
    turns_.push_back({static_cast<std::uint32_t>(*chosen), static_cast<std::uint32_t>(of_part_[*chosen].size())});
    of_part_[*chosen].push_back(static_cast<std::uint32_t>(turn - 1));
  }
}

TurnsOfParts::Place TurnsOfParts::operator()(std::int64_t index) const {
  if (index < 0) throw Error("sequence " + std::to_string(index) + " was asked for");
  const Turn& turn = turns_[static_cast<std::size_t>(index % period())];
  return {turn.part, index / period() * weights_[turn.part] + turn.index};
}

std::vector<std::int64_t> TurnsOfParts::of_first(std::int64_t count) const {
  std::vector<std::int64_t> counts;
  for (std::size_t part = 0; part < weights_.size(); ++part) {
    const auto rest = std::lower_bound(of_part_[part].begin(), of_part_[part].end(), count % period(),
                                       std::cmp_less<std::uint32_t, std::int64_t>);
    counts.push_back(count / period() * weights_[part] + (rest - of_part_[part].begin()));
  }
  return counts;
}

std::int64_t TurnsOfParts::until(std::size_t part, std::int64_t count) const {
  const std::int64_t before = (count - 1) / weights_[part];  // periods
  return before * period() + of_part_[part][static_cast<std::size_t>(count - 1 - before * weights_[part])] + 1;
}

Mixture::Mixture(std::vector<Part> parts) : parts_(std::move(parts)), turns_(weights_of(parts_)) {
  for (const Part& part : parts_) {
    fields_of_part_.push_back(part.dataset->fields());
    for (const Field& field : fields_of_part_.back()) {
      if (!has(fields_, field)) fields_.push_back(field);
    }
  }
  for (const Field& field : fields_) {
    const bool has_default = field == Field{"loss_mask", DType::i32} || field == Field{"document_start", DType::i32};
    for (std::size_t part = 0; part < parts_.size() && !has_default; ++part) {
      if (!has(fields_of_part_[part], field))
        throw UsageError("--dataset: a part has a field '" + field.name + "', which '" + parts_[part].choice.name +
                         "' has not, and nothing says what it is there; take parts that have the same fields");
    }
  }
}

void Mixture::open(const DatasetRequest& request) {
  sequence_ = request.sequence_length;
  for (const Part& part : parts_) {
    try {
      part.dataset->open(request);
    } catch (...) {
      rethrow_after("'" + part.choice.name + "' of --dataset: ");
    }
  }
  std::optional<std::int64_t> end;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const std::int64_t before = turns_.until(part, parts_[part].dataset->eval_sequences() + 1) - 1;
    end = std::min(end.value_or(before), before);
  }
  eval_sequences_ = *end;
}

std::int64_t Mixture::train_sequences() const {
  std::int64_t all = 0;
  for (std::size_t part = 0; part < parts_.size(); ++part)
    all = std::max(all, turns_.until(part, parts_[part].dataset->train_sequences()));
  return all;
}

namespace {

/// Calls `read` with the number of the part and the index within it, and names the part in what that throws.
template <typename Read>
void read_part(const std::vector<Mixture::Part>& parts, const TurnsOfParts& turns, std::int64_t index, const Read& read) {
  const TurnsOfParts::Place place = turns(index);
  try {
    read(place.part, place.index);
  } catch (...) {
    rethrow_after("'" + parts[place.part].choice.name + "', sequence " + std::to_string(place.index) + ": ");
  }
}

}  // namespace

void Mixture::read_train(std::int64_t index, std::span<std::int32_t> tokens) const {
  read_part(parts_, turns_, index, [&](std::size_t part, std::int64_t at) { parts_[part].dataset->read_train(at, tokens); });
}

void Mixture::read_eval(std::int64_t index, std::span<std::int32_t> tokens) const {
  read_part(parts_, turns_, index, [&](std::size_t part, std::int64_t at) { parts_[part].dataset->read_eval(at, tokens); });
}

/// Fills the fields that the part does not have, and returns those that it has.
std::vector<FieldValues> Mixture::fill_others(std::size_t part, std::span<const FieldValues> values) const {
  std::vector<FieldValues> own;
  for (const FieldValues& value : values) {
    if (has(fields_of_part_[part], value.field)) {
      own.push_back(value);
    } else {
      std::fill_n(static_cast<std::int32_t*>(value.data), sequence_, value.field.name == "loss_mask" ? 1 : 0);
    }
  }
  return own;
}

void Mixture::read_train_fields(std::int64_t index, std::span<const FieldValues> values) const {
  read_part(parts_, turns_, index, [&](std::size_t part, std::int64_t at) {
    if (const auto own = fill_others(part, values); !own.empty()) parts_[part].dataset->read_train_fields(at, own);
  });
}

void Mixture::read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const {
  read_part(parts_, turns_, index, [&](std::size_t part, std::int64_t at) {
    if (const auto own = fill_others(part, values); !own.empty()) parts_[part].dataset->read_eval_fields(at, own);
  });
}

std::string Mixture::describe() const {
  std::string text = "a mixture of";
  for (const Part& part : parts_) {
    text += (&part == parts_.data() ? " " : "; ") +
            percent_text(static_cast<double>(part.choice.weight) / static_cast<double>(turns_.period()), 1) + " " +
            (part.choice.name == part.choice.plugin ? "" : part.choice.name + " ") + part.dataset->describe();
  }
  return text;
}

std::string Mixture::tokenizer() const {
  for (const Part& part : parts_) {
    if (const std::string file = part.dataset->tokenizer(); !file.empty()) return file;
  }
  return "";
}

std::string Mixture::chat_template() const {
  for (const Part& part : parts_) {
    if (const std::string program = part.dataset->chat_template(); !program.empty()) return program;
  }
  return "";
}

std::vector<std::string> Mixture::warnings() const {
  std::vector<std::string> all;
  const Part* first = nullptr;
  for (const Part& part : parts_) {
    for (const std::string& warning : part.dataset->warnings())
      all.push_back("'" + part.choice.name + "' of --dataset: " + warning);
    const std::string file = part.dataset->tokenizer();
    if (file.empty()) continue;
    if (first == nullptr) first = &part;
    if (file != first->dataset->tokenizer())
      all.push_back("--dataset: '" + first->choice.name + "' is tokenized by " + first->dataset->tokenizer() + ", '" +
                    part.choice.name + "' by " + file + ": the same id may stand for different texts");
  }
  return all;
}

std::string Mixture::text_of_first(std::int64_t sequences) const {
  const std::vector<std::int64_t> counts = turns_.of_first(sequences);
  std::string text;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    text += (part == 0 ? "" : ", ") + parts_[part].choice.name + " " + std::to_string(counts[part]) + " sequences, " +
            std::to_string(counts[part] * sequence_) + " tokens (" +
            percent_text(sequences > 0 ? static_cast<double>(counts[part]) / static_cast<double>(sequences) : 0, 1) + ")";
  }
  return text;
}

}  // namespace consist
