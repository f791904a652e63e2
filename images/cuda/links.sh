#!/bin/sh
# Links CUDA's solver to where TensorFlow finds it: of the folders of CUDA's Python packages, the search path of TensorFlow
# 2.21 lacks that of the solver, and without the solver TensorFlow uses no GPU at all ("Cannot dlopen some GPU libraries").
# A link works for every process, also for the ranks that sshd starts without the variables of the image.
#   links.sh SITE_PACKAGES
set -eu
cd "$1/nvidia/cusparse/lib"
ln -sf ../../cusolver/lib/libcusolver.so.* .
