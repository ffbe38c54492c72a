// Symbol visibility of the core library. Everything in the public headers is exported; the rest of the core is hidden
// from plugins by living outside core/include, not by visibility.
#pragma once

#define CONSIST_API __attribute__((visibility("default")))
