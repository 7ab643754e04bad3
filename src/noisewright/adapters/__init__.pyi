from .models import DiffusersNet as DiffusersNet
from .models import diffusers_denoiser as diffusers_denoiser
from .models import wrap_unet as wrap_unet
from .per_sample import PerSampleEulerScheduler as PerSampleEulerScheduler
from .schedulers import SUPPORTED as SUPPORTED
from .schedulers import set_levels as set_levels
