#!/bin/sh
# Removes from /opt/venv what no training run opens: headers, static libraries, the packages' own tests, the symbols for
# debuggers (200 MB in TensorFlow 2.21), libclang, which TensorFlow's wheel requires but nothing in it imports, and of
# CUDA the compiler's library and the solver for several GPUs, which TensorFlow never loads. XLA needs ptxas and
# libdevice at run time: they stay.
set -eu
cd /opt/venv/lib/python3.11/site-packages
rm -rf tensorflow/include clang/native
rm -rf nvidia/*/include nvidia/cuda_nvcc/nvvm/lib64 nvidia/cusolver/lib/libcusolverMg.so.*
find . -type d -name tests -prune -exec rm -rf {} +
find . -name '*.a' -delete
find tensorflow horovod -name '*.so*' -type f -exec strip --strip-unneeded {} +
# A process for each package: what one process compiles depends on what it compiled before. And nothing else writes
# bytecode, which would have the time of its source in it.
export PYTHONDONTWRITEBYTECODE=1
printf '%s\0' * | xargs -0 -n 1 -P "$(nproc)" python3 -m compileall -q --invalidation-mode unchecked-hash
