/* Lets the C that pyslurm 25.11.2 generates compile against the headers of Slurm 26.05: functions that took a job id
 * take a slurm_step_id_t now, one function and one error have other names. Forced in with `gcc -include`. */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

static inline slurm_step_id_t rad_step_id(uint32_t job_id)
{
	slurm_step_id_t step_id = SLURM_STEP_ID_INITIALIZER;
	step_id.job_id = job_id;
	return step_id;
}

#define slurm_load_job(resp, id, flags) slurm_load_job((resp), rad_step_id(id), (flags))
#define slurm_kill_job(id, sig, flags) slurm_kill_job(rad_step_id(id), (sig), (flags))
#define slurm_suspend(id) slurm_suspend(rad_step_id(id))
#define slurm_resume(id) slurm_resume(rad_step_id(id))
#define slurm_requeue(id, flags) slurm_requeue(rad_step_id(id), (flags))
#define slurm_notify_job(id, message) slurm_notify_job(rad_step_id(id), (message))
#define slurm_get_end_time(id, time) slurm_get_end_time(rad_step_id(id), (time))
#define slurm_get_rem_time(id) slurm_get_rem_time(rad_step_id(id))
#define slurm_job_node_ready(id) slurm_job_node_ready(rad_step_id(id))
#define slurm_pid2jobid(pid, id) ({ slurm_step_id_t step_id; int rc = slurm_pid2jobid((pid), &step_id); *(id) = step_id.job_id; rc; })
#define slurm_free_ctl_conf slurm_free_conf
#define ESLURM_ERROR_ON_DESC_TO_RECORD_COPY (-1)
