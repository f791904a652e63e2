# What Horovod's build is told about the toolkit that toolkit.sh made; CMake reads it as its toolchain file.

set(CUDAToolkit_ROOT $ENV{HOROVOD_CUDA_HOME})
# NVIDIA's packages have shared libraries only.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
# Horovod says -gencode itself, from HOROVOD_BUILD_CUDA_CC_LIST.
set(CMAKE_CUDA_ARCHITECTURES OFF)
# TensorFlow exports stand-ins for CUDA's functions; the linker would take them for the runtime and leave it out.
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,--no-as-needed $ENV{HOROVOD_CUDA_HOME}/lib64/libcudart.so -Wl,--as-needed")
# From horovod/tensorflow/ all libraries are beside it in site-packages, wherever that is.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH
    $ORIGIN/../../tensorflow
    $ORIGIN/../../tensorflow/python
    $ORIGIN/../../nvidia/cuda_runtime/lib
    $ORIGIN/../../nvidia/nccl/lib)
