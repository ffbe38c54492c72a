// Formulas of mixtures of experts, from tests/reference/moe.h.
#include "tests/interpreter/work.h"
#include "tests/reference/moe.h"

namespace consist::interpreter {
namespace {

using reference::Value;
using reference::Values;

void route(Work& w) {
  const Values made = reference::moe_route(w.in(0), w.attributes().integer("choices"), w.attributes().integer("normalize") != 0);
  for (std::size_t k = 0; k < 3; ++k) w.out(k, *made[k]);
}
void route_grad(Work& w) {
  const Value dweights = w.has(2) ? w.in(2) : Value{}, dstatistics = w.has(3) ? w.in(3) : Value{};
  w.out(0, reference::moe_route_grad(w.in(0), w.in(1), w.has(2) ? &dweights : nullptr, w.has(3) ? &dstatistics : nullptr,
                                     w.attributes().integer("normalize") != 0));
}

void balance_loss(Work& w) {
  w.out(0, reference::balance_loss(w.in(0), w.attributes().real("balance"), w.attributes().real("z")));
}
void balance_loss_grad(Work& w) {
  w.out(0, reference::balance_loss_grad(w.in(0), w.attributes().real("balance"), w.attributes().real("z")));
}

void dispatch(Work& w) {
  const Values made =
      reference::moe_dispatch(w.in(0), w.in(1), w.in(2), w.out_shape(0)[1], w.out_origin(3, 0), w.out_shape(3)[0]);
  for (std::size_t k = 0; k < made.size(); ++k) w.out(k, *made[k]);
}
void dispatch_grad(Work& w) {
  const Values made = reference::moe_dispatch_grad(w.in(0), w.in(1), w.in(2), w.in(4));
  w.out(0, *made[0]);
  w.out(1, *made[1]);
}
void combine(Work& w) {
  w.out(0, reference::moe_combine(w.in(0), w.in(1), w.in(3)));
}
void combine_grad(Work& w) {
  w.out(0, reference::moe_combine_grad(w.in(0), w.in(1), w.attributes().integer("choices")));
}

void grouped_linear(Work& w) {
  w.out(0, reference::grouped_linear(w.in(0), w.in(1), w.in(2)));
}
void grouped_linear_input_grad(Work& w) {
  w.out(0, reference::grouped_linear_input_grad(w.in(0), w.in(1), w.in(2)));
}
void grouped_linear_weight_grad(Work& w) {
  w.out_sum(0, 3, reference::grouped_linear_weight_grad(w.in(0), w.in(1), w.in(2)));
}
void moe_swiglu(Work& w) {
  w.out(0, reference::moe_swiglu(w.in(0), w.in(1)));
}
void moe_swiglu_grad(Work& w) {
  const Values made = reference::moe_swiglu_grad(w.in(0), w.in(1), w.in(2));
  w.out(0, *made[0]);
  w.out(1, *made[1]);
}

}  // namespace

const std::vector<std::pair<std::string_view, Formula>>& moe_formulas() {
  static const std::vector<std::pair<std::string_view, Formula>> table{{"moe_route", route},
                                                                       {"moe_route_grad", route_grad},
                                                                       {"balance_loss", balance_loss},
                                                                       {"balance_loss_grad", balance_loss_grad},
                                                                       {"moe_dispatch", dispatch},
                                                                       {"moe_dispatch_grad", dispatch_grad},
                                                                       {"moe_combine", combine},
                                                                       {"moe_combine_grad", combine_grad},
                                                                       {"grouped_linear", grouped_linear},
                                                                       {"grouped_linear_input_grad", grouped_linear_input_grad},
                                                                       {"grouped_linear_weight_grad", grouped_linear_weight_grad},
                                                                       {"moe_swiglu", moe_swiglu},
                                                                       {"moe_swiglu_grad", moe_swiglu_grad}};
  return table;
}

}  // namespace consist::interpreter
