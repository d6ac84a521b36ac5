// Lets a thread that computes be told in the middle of it that nobody wants the result any more.
//
// ggml asks an abort callback after every node of a graph, and llama.cpp then forgets the batch. The wrapper that we use
// has no way to set that callback, so heddle.cmake renames what the CPU backend calls for a graph, and it is set here: for
// each thread its own. ggml asks in the thread that called it, so there is nothing to share and nothing to lock.

#include "ggml-cpu.h"

namespace {

using IsUnwanted = bool (*)();

thread_local IsUnwanted is_unwanted = nullptr;

bool ask(void *) { return is_unwanted(); }

} // namespace

// Has `callback` asked after every node that this thread has computed from now on; nobody, if it is null.
extern "C" void heddle_abort_when(IsUnwanted callback) { is_unwanted = callback; }

extern "C" enum ggml_status heddle_graph_compute(struct ggml_cgraph *graph, struct ggml_cplan *plan) {
    if (is_unwanted && !plan->abort_callback) {
        plan->abort_callback = ask;
    }
    return ggml_graph_compute(graph, plan);
}
