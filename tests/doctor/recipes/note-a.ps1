# Field note A: RX 9070 XT on native Windows
$env:HSA_ENABLE_SDMA = "0"
$env:HIP_LAUNCH_BLOCKING = "1"
.\scripts\run_rocm_test.ps1
