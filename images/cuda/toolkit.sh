#!/bin/sh
# Puts NVIDIA's Python packages together to what build systems take for a CUDA toolkit, /opt/cuda.
set -eu
packages=/opt/venv/lib/python3.11/site-packages/nvidia
here=$(dirname "$0")
mkdir -p /opt/cuda/bin /opt/cuda/lib64 /opt/cuda/nvvm
for name in cuda_nvcc cuda_runtime cuda_cccl curand nccl; do
    cp -rsf "$packages/$name/include" /opt/cuda/
done
for library in cuda_runtime/lib/libcudart.so.12 nccl/lib/libnccl.so.2 nvfatbin/lib/libnvfatbin.so.12; do
    plain=$(basename "${library%.*}")
    ln -s "$packages/$library" "/opt/cuda/lib64/$plain"
done
# For kernels that start kernels. Horovod has none, but CMake links it always.
ar cr /opt/cuda/lib64/libcudadevrt.a
ln -s "$packages/cuda_nvcc/nvvm/libdevice" /opt/cuda/nvvm/
ln -s "$packages/cuda_nvcc/bin/ptxas" /opt/cuda/bin/
install "$here/nvcc.py" /opt/cuda/bin/nvcc
install "$here/fatbinary.py" /opt/cuda/bin/fatbinary
