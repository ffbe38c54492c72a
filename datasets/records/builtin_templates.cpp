#include "datasets/records/builtin_templates.h"

#include <string>

namespace consist::records {
namespace {

constexpr const char* chatml = R"J({%- for message in messages -%}
  {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)J";

constexpr const char* llama3 = R"J({{- '<|begin_of_text|>' -}}
{%- for message in messages -%}
  {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}
)J";

// Both of the next: user and assistant take turns.
constexpr const char* llama2 = R"J({%- set has_system = messages[0].role == 'system' -%}
{%- for message in (messages[1:] if has_system else messages) -%}
  {%- set due = 'user' if loop.index is odd else 'assistant' -%}
  {%- if message.role != due -%}
    {{- raise_exception('message ' ~ (loop.index + (1 if has_system else 0)) ~ ' is of the role "' ~ message.role ~
                        '"; user and assistant take turns here, so it must be ' ~ due) -}}
  {%- endif -%}
  {%- if due == 'assistant' -%}
    {{- ' ' ~ message.content.strip() ~ ' </s>' -}}
  {%- elif has_system and loop.first -%}
    {{- '<s>[INST] ' ~ ('<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' ~ message.content).strip() ~ ' [/INST]' -}}
  {%- else -%}
    {{- '<s>[INST] ' ~ message.content.strip() ~ ' [/INST]' -}}
  {%- endif -%}
{%- endfor -%}
)J";

constexpr const char* mistral = R"J({{- '<s>' -}}
{%- for message in messages -%}
  {%- set due = 'user' if loop.index is odd else 'assistant' -%}
  {%- if message.role != due -%}
    {{- raise_exception('message ' ~ loop.index ~ ' is of the role "' ~ message.role ~
                        '"; user and assistant take turns here, so it must be ' ~ due) -}}
  {%- endif -%}
  {{- '[INST] ' ~ message.content ~ ' [/INST]' if due == 'user' else message.content ~ '</s>' -}}
{%- endfor -%}
)J";

// Text of tools and of the roles, which both of Qwen's families write. `opening` writes the message of the system that is there
// without one.
constexpr const char* qwen = R"J({%- macro instructions() -%}
  {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\n' ~
      'You are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
  {%- for tool in tools -%}{{- '\n' ~ tool | tojson -}}{%- endfor -%}
  {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' ~
      '<tool_call></tool_call> XML tags:\n<tool_call>\n' ~
      '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' -}}
{%- endmacro -%}
{%- macro answer_of_tool(message, begins, ends) -%}
  {{- '<|im_start|>user' if begins -}}
  {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' -}}
  {{- '<|im_end|>\n' if ends -}}
{%- endmacro -%}
{%- macro refuse(message, number) -%}
  {{- raise_exception('message ' ~ number ~ ' is of the role "' ~ message.role ~
                      '"; this chat template can write system, user, assistant and tool') -}}
{%- endmacro -%}
)J";

constexpr const char* qwen2_5 = R"J({%- set has_system = messages[0].role == 'system' -%}
{%- set system = messages[0].content if has_system else 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}
{{- '<|im_start|>system\n' ~ system ~ ('\n\n' ~ instructions() if tools else '') ~ '<|im_end|>\n' -}}
{%- for message in messages -%}
  {%- if message.role == 'tool' -%}
    {{- answer_of_tool(message, loop.first or loop.previtem.role != 'tool',
                       loop.last or loop.nextitem.role != 'tool') -}}
  {%- elif message.role == 'assistant' and message.tool_calls -%}
    {{- '<|im_start|>assistant' ~ ('\n' ~ message.content if message.content else '') -}}
    {%- for call in message.tool_calls -%}
      {%- set function = call.function if call.function is defined else call -%}
      {{- '\n<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' ~ function.arguments | tojson ~ '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif message.role in ['system', 'user', 'assistant'] -%}
    {%- if not (has_system and loop.first) -%}
      {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
    {%- endif -%}
  {%- else -%}
    {{- refuse(message, loop.index) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)J";

// Thoughts are written in answers to the last question alone; the last answer has room for them even without any.
constexpr const char* qwen3 = R"J({%- set has_system = messages[0].role == 'system' -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' ~ (messages[0].content ~ '\n\n' if has_system else '') ~ instructions() ~ '<|im_end|>\n' -}}
{%- elif has_system -%}
  {{- '<|im_start|>system\n' ~ messages[0].content ~ '<|im_end|>\n' -}}
{%- endif -%}
{%- set last = namespace(question=messages | length - 1) -%}
{%- for message in messages | reverse -%}
  {%- if message.role == 'user' and
         not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) -%}
    {%- set last.question = loop.revindex0 -%}
    {%- break -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'tool' -%}
    {{- answer_of_tool({'content': content}, loop.first or loop.previtem.role != 'tool',
                       loop.last or loop.nextitem.role != 'tool') -}}
  {%- elif message.role == 'assistant' -%}
    {%- set thoughts = '' -%}
    {%- if message.reasoning_content is string -%}
      {%- set thoughts = message.reasoning_content -%}
    {%- elif '</think>' in content -%}
      {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
      {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if loop.index0 > last.question and (loop.last or thoughts) -%}
      {{- '<think>\n' ~ thoughts.strip('\n') ~ '\n</think>\n\n' ~ content.lstrip('\n') -}}
    {%- else -%}
      {{- content -}}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {%- set function = call.function or call -%}
      {{- '\n' if content or not loop.first -}}
      {{- '<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' -}}
      {{- function.arguments if function.arguments is string else function.arguments | tojson -}}
      {{- '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif message.role in ['system', 'user'] -%}
    {%- if not (has_system and loop.first) -%}
      {{- '<|im_start|>' ~ message.role ~ '\n' ~ content ~ '<|im_end|>\n' -}}
    {%- endif -%}
  {%- else -%}
    {{- refuse(message, loop.index) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)J";

constexpr const char* of_chatml = "<|im_start|>,<|im_end|>";

const BuiltinTemplate templates[] = {
    {"chatml", of_chatml, chatml},
    {"llama2", "<s>,</s>", llama2},
    {"llama3", "<|begin_of_text|>,<|start_header_id|>,<|end_header_id|>,<|eot_id|>", llama3},
    {"mistral", "<s>,</s>", mistral},
    {"qwen2.5", of_chatml, std::string(qwen) + qwen2_5},
    {"qwen3", of_chatml, std::string(qwen) + qwen3},
};

}  // namespace

const BuiltinTemplate* find_builtin_template(std::string_view name) noexcept {
  for (const BuiltinTemplate& chat : templates) {
    if (name == chat.name) return &chat;
  }
  return nullptr;
}

}  // namespace consist::records
