#!/bin/bash
# Field note D: one RX 7900 XT
export PYTORCH_HIP_ALLOC_CONF="expandable_segments:True,max_split_size_mb:32,garbage_collection_threshold:0.95,roundup_power2_divisions:32"
export HIP_FORCE_DEV_KERNARG=1
export PYTORCH_NO_HIP_MEMORY_CACHING=1
export AMD_SERIALIZE_KERNEL=3
HIP_VISIBLE_DEVICES=0
export MIOPEN_USER_DB_PATH=/tmp/miopen_cache
export MIOPEN_ENABLE_LOGGING=1
export MIOPEN_LOG_LEVEL=4
export MIOPEN_DISABLE_CACHE=1
python train.py
