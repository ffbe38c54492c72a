// The collectives between all tokens and a rank's tokens.
#pragma once

#include "consist/program.h"

namespace consist::tensor_parallel {

/// True if `i` gathers or scatters tensors [batch, sequence, channels] along the sequence over mesh axis `axis`.
bool moves_tokens(const Program& program, const Instruction& i, int axis);

/// True if a rank may have any tokens, as long as all of `step` agrees on them: only ops with TokenOrder::any, such as norms and
/// residuals, work on its shards. False where a rank takes slices of the token ids themselves, exchanges tokens for channels, or
/// sends its tokens to a rank with another program.
bool any_tokens_do(const Program& step, int axis);

/// Makes each of these collectives one message where it would be one per sequence: a rank then has neighbouring tokens of the
/// batch as it lies in memory, instead of the same slice of every sequence. Only where any_tokens_do().
void move_tokens_as_one_message(Program& step, int axis);

}  // namespace consist::tensor_parallel
