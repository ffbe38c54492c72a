// Why a published speed is or is not what a configuration is predicted to reach, and what is missing to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "launch/predict/prediction.h"
#include "launch/search/advise/advice.h"
#include "launch/search/reproduce/published.h"

namespace consist::launch {

/// A thing that the prediction takes for granted of a measurement, and where it is from: "recipe", "machine", "assumed".
struct Term {
  std::string what, words, source;
};

/// A part of the predicted step that is no work of kernels, or such work: what the speed would be without it.
struct MissingPart {
  std::string name;
  double seconds = 0;  ///< of the step
  double rate = 0;     ///< tokens/s per GPU without it
};

enum class Outcome : unsigned char {
  explained,      ///< the number lies within the interval of the prediction
  not_explained,  ///< it lies outside
  unclear,        ///< it lies outside of what measured steps allow, and of a part of this step none was measured
};

struct Reproduction {
  Prediction prediction;
  Published published;
  std::vector<Counting> countings;
  std::size_t counting = 0;  ///< the one that a published FLOP/s is read by
  double rate = 0;           ///< published, tokens/s per GPU
  double predicted = 0;      ///< tokens/s per GPU
  /// Relative, as ErrorBar's; by the kinds of this step that were measured alone if `error_is_whole` is false. Nothing: no error
  /// of one device is known.
  std::optional<double> error;
  bool error_is_whole = false;
  std::vector<Term> contract;
  std::vector<MissingPart> parts;  ///< waiting, by what for; the longest first
  double without_waiting = 0;      ///< tokens/s per GPU if nothing waited: what the machine's file thinks its kernels can do
  double peak = 0;                 ///< FLOP/s of the precision's products; 0: not known
  double products_share = 0;       ///< of that peak which products reach in this step
  /// Share that they would have to reach for the published speed, all else as it is; nothing: no speed of products makes it.
  std::optional<double> needed_share;
  double best_share = 0;  ///< the highest share that the machine's file has for a product; 0: it has none
  std::vector<Advice> advice, together;

  double gap() const { return rate / predicted - 1; }  ///< published over predicted, less 1
  double low() const { return predicted / (1 + error.value_or(0)); }
  double high() const { return predicted * (1 + error.value_or(0)); }
  double published_mfu() const { return peak > 0 ? rate * countings.front().flops / peak : 0; }
  Outcome outcome() const;
};

/// Plans, simulates, and where the number is out of reach looks for changes for `advise_seconds`. `counting`: a Counting::name.
/// Throws UsageError for one that there is not, and what planning throws.
Reproduction reproduce(const Plan& plan, PluginHost& host, const Published& published, const std::string& counting,
                       double advise_seconds);

std::string text_of(const Reproduction& reproduction, const Plan& plan);
/// docs/json/reproduce.schema.json.
nlohmann::ordered_json json_of(const Reproduction& reproduction, const Plan& plan);

/// "explained", "not explained", "cannot be told".
std::string_view name_of(Outcome outcome) noexcept;

}  // namespace consist::launch
