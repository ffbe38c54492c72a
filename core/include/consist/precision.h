// Precisions: the dtype of every role, and rewrites of the forward program (casts, quantization). A precision does not know
// ranks.
#pragma once

#include <optional>
#include <string>

#include "consist/dtype.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

class PassList;

/// The dtype of every role of a run. Stated in the banner and the archive.
struct DTypes {
  DType parameter = DType::f32;   ///< weights as forward and backward read them; activations follow
  DType gradient = DType::f32;    ///< accumulated gradients of parameters
  std::optional<DType> master;    ///< weights that the optimizer keeps; absent: it updates `parameter`
  DType moment = DType::f32;      ///< Adam's two moments
  bool stochastic_rounding = false;  ///< of parameters without a master, and of bf16 moments
};

/// The plugin kind "precision". The same answer each time and on every rank. THREADS: several at a time, each with a program of
/// its own: predictions compile the ranks of a pipeline in parallel.
class CONSIST_API Precision {
 public:
  virtual ~Precision();
  virtual DTypes dtypes() const = 0;
  /// Rewrites the forward program of one micro-batch. Parameters have dtypes().parameter by then, and types follow from them.
  virtual void rewrite(Program& forward) const;
  /// Adds passes of its own (consist/pass.h), beside rewrite(). The default adds none.
  virtual void add_passes(PassList& passes) const;
  /// One line for the log: "bf16 weights and activations, fp32 masters, gradients and moments".
  virtual std::string describe() const = 0;
  /// Precision of the device's peak that MFU refers to: "fp32", "tf32", "bf16", "fp8".
  virtual std::string peak() const = 0;
};

}  // namespace consist
