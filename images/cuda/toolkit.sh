#!/bin/sh
# Puts NVIDIA's Python packages together to what build systems take for a CUDA toolkit, in a new folder:
#   toolkit.sh /opt/venv/lib/python3.11/site-packages /opt/cuda
set -eu
packages=$(realpath "$1")/nvidia
here=$(dirname "$0")
mkdir -p "$2/bin" "$2/lib64" "$2/nvvm"
cuda=$(realpath "$2")
for name in cuda_nvcc cuda_runtime cuda_cccl curand nccl; do
    cp -rsf "$packages/$name/include" "$cuda/"
done
for library in cuda_runtime/lib/libcudart.so.12 nccl/lib/libnccl.so.2 nvfatbin/lib/libnvfatbin.so.12; do
    plain=$(basename "${library%.*}")
    ln -s "$packages/$library" "$cuda/lib64/$plain"
done
# For kernels that start kernels. Horovod has none, but CMake links it always.
ar cr "$cuda/lib64/libcudadevrt.a"
ln -s "$packages/cuda_nvcc/nvvm/libdevice" "$cuda/nvvm/"
ln -s "$packages/cuda_nvcc/bin/ptxas" "$cuda/bin/"
install "$here/nvcc.py" "$cuda/bin/nvcc"
install "$here/fatbinary.py" "$cuda/bin/fatbinary"
