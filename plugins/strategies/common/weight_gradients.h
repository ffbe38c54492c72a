// Overlap in backward: nothing waits for the gradients of weights, so they are computed while activations' gradients are sent.
#pragma once

#include "consist/program.h"

namespace consist::strategies {

/// Moves the products that make gradients of weights (linear_weight_grad, linear_bias_grad) behind collectives of mesh axis
/// `axis`: in front of the first instruction that waits for one. All collectives of a micro-batch's backward share them evenly,
/// by FLOPs. Values and the order of sums stay as they are.
void delay_weight_gradients(Program& step, int axis);

}  // namespace consist::strategies
