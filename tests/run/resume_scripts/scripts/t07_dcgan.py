"""The DCGAN example: weights of two networks per epoch, and options to load those only."""
import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--niter", type=int, default=6, help="number of epochs to train for")
parser.add_argument("--netG", default="", help="path to netG (to continue training)")
parser.add_argument("--netD", default="", help="path to netD (to continue training)")
parser.add_argument("--outf", default="samples", help="folder to output images and model checkpoints")
opt = parser.parse_args()
os.makedirs(opt.outf, exist_ok=True)
torch.manual_seed(0)
torch.set_num_threads(1)
netG, netD = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
if opt.netG != "":
    netG.load_state_dict(torch.load(opt.netG))
if opt.netD != "":
    netD.load_state_dict(torch.load(opt.netD))
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(opt.niter):
    for i in range(5):
        noise = torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch * 10 + i))
        optimizerD.zero_grad()
        errD = (netD(netG(noise).detach()) - netD(noise)).square().mean()
        errD.backward()
        optimizerD.step()
        optimizerG.zero_grad()
        errG = -netD(netG(noise)).mean()
        errG.backward()
        optimizerG.step()
        time.sleep(0.1)
        print("[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f" % (epoch, opt.niter, i, 5, errD, errG), flush=True)
    torch.save(netG.state_dict(), "%s/netG_epoch_%d.pth" % (opt.outf, epoch))
    torch.save(netD.state_dict(), "%s/netD_epoch_%d.pth" % (opt.outf, epoch))
