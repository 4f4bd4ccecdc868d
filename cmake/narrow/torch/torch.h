// Stands in for LibTorch's umbrella header (this folder comes first on the include path): only the parts redline uses. The whole umbrella
// costs 14 s per file even precompiled, this 6 s. A file that needs more (an optimiser in a benchmark) includes that header by name.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>
